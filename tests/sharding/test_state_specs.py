"""Tests of PartitionSpecs by path, against the readers of EasyLM and big_vision in their sources."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.model import by_regex, fsdp
from inspector.model.state_specs import table_of
from inspector.sharding.state_specs import Fsdp, row_for, spec_of
from inspector.text.errors import InvalidInput
from tests.paths import CASES

FILE = CASES / "rules" / "other_frameworks_rules.json"

LLAMA = {
    "params/transformer/wte/embedding": (32000, 4096),
    "params/transformer/h/0/attention/wq/kernel": (4096, 4096),
    "params/transformer/h/0/attention/wo/kernel": (4096, 4096),
    "params/transformer/h/0/feed_forward/w2/kernel": (11008, 4096),
    "params/transformer/h/0/attention_norm/kernel": (4096,),
    "opt_state/0/mu/transformer/h/3/attention/wv/kernel": (4096, 4096),
    "params/lm_head/kernel": (4096, 32000),
    "params/other": (3, 5),
}


# The rows overlap, so that their order decides, and name no axis, an axis or several.
OWN_TABLE = {
    "mesh_axes": ["data", "rows", "cols"],
    "rules": [
        ["embedding$", [["rows", "cols"], None]],
        ["norm/kernel", []],
        ["attention/w[qkv]/", [None, "cols"]],
        ["attention", ["cols", "rows"]],
        ["mu/.*kernel", [["data"], "cols"]],
        ["w2", ["cols", ["data", "rows"]]],
        ["params/(lm_head|other)", ["rows"]],
        [".*", [None]],
    ],
}


@pytest.mark.parametrize(
    "case",
    [
        "own",
        *(
            pytest.param(
                name,
                marks=pytest.mark.skipif(not FILE.exists(), reason="needs the cases of public rule tables"),
            )
            for name in ("easylm_llama", "easydel_llama_2025_01")
        ),
    ],
)
def test_tables_of_public_projects_are_read_as_there(case) -> None:
    written = OWN_TABLE if case == "own" else json.loads(FILE.read_text())[case]
    table = by_regex(written["rules"])
    sizes = dict.fromkeys(written["mesh_axes"], 2)
    for path, shape in LLAMA.items():
        # EasyLM's match_partition_rules: the first rule for which re.search finds something.
        theirs = next(spec for pattern, spec in written["rules"] if re.search(pattern, path))
        expected = [[axes] if isinstance(axes, str) else axes for axes in theirs]
        expected += [None] * (len(shape) - len(expected))
        result = spec_of(table[row_for(table, path)], path, shape, 4, sizes)
        assert [axes and list(axes) for axes in result] == expected


def big_vision(shape, itemsize, axis, axis_size, least) -> tuple:
    """The body of `fsdp` in big_vision/sharding.py for an array without a spec."""
    spec = (None,) * len(shape)
    if np.prod(shape) * itemsize <= least:
        return spec
    # Theirs is not stable, so the order of equal dimensions depends on the processor.
    for i in np.argsort(shape, kind="stable")[::-1]:
        if shape[i] % axis_size == 0:
            return (*spec[:i], axis, *spec[i + 1 :])
    return spec


@given(st.lists(st.integers(1, 64), max_size=4), st.integers(1, 16), st.integers(0, 4096))
def test_fsdp_shards_the_dimension_that_big_vision_shards(shape, ways, least) -> None:
    spec = Fsdp(("data",), least).spec(shape, 4, {"data": ways})
    assert spec == big_vision(tuple(shape), 4, ("data",), ways, least)


def test_a_full_match_is_one_of_the_whole_path() -> None:
    rows = [("params/.*|img", fsdp("data")), ("w", ())]
    assert row_for(by_regex(rows), "x/params/w") == 0
    assert row_for(by_regex(rows, full_match=True), "x/params/w") is None
    assert row_for(by_regex(rows, full_match=True), "params/w") == 0
    assert row_for(by_regex(rows, full_match=True), "img") == 0


def test_forms_of_a_table() -> None:
    rows = [("a", ("x", None)), ("b", (("x", "y"),))]
    assert table_of(rows) == table_of(by_regex(rows)) == by_regex(rows)
    assert table_of(fsdp("x", 7)) == by_regex([(".*", fsdp("x", 7))])
    assert table_of(lambda path, shape, mesh: None) is None
    assert table_of({"a": ("x",)}) is None


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("(", ())], "not a regular expression"),
        ([("", ())], "1 to 300 printable characters"),
        ([("a" * 301, ())], "1 to 300 printable characters"),
        ([("a", 3)], "must have a PartitionSpec"),
        ([("a", (3,))], "must have a PartitionSpec"),
        ([3], "a row is"),
        ([("a", ())] * 201, "at most 200"),
    ],
)
def test_errors_of_tables(rows, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        by_regex(rows)


def test_a_spec_that_does_not_fit_is_refused() -> None:
    (row,) = by_regex([("w", ("data", None))])
    assert spec_of(row, "w", (8, 4, 2), 4, {"data": 2}) == (("data",), None, None)
    with pytest.raises(InvalidInput, match="gives w 2 entries, but the array has 1 dimension"):
        spec_of(row, "w", (8,), 4, {"data": 2})
    with pytest.raises(InvalidInput, match="names mesh axis 'data', but the mesh has model"):
        spec_of(row, "w", (8, 4), 4, {"model": 2})
