"""Tests of the rule ledger of an array, in Linen and in nnx."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from inspector.records.snapshot import Array, Mesh, MeshAxis, Snapshot, Source
from inspector.sharding.rules.entries import ledger_of
from inspector.sharding.rules.written import parse, recorded
from inspector.text.errors import InvalidInput

pytestmark = pytest.mark.close_to_jax

MESH = Mesh((MeshAxis("data", 2), MeshAxis("model", 4), MeshAxis("one", 1)), tuple(range(8)))
RULES = (
    ("embed", ("model",)),
    ("hidden", ("model",)),
    ("hidden", ("one",)),
    ("embed", ("data",)),
    ("layer", ()),
)


def array(*names: str | None, spec=None, size: int = 8) -> Array:
    return Array("w", "params", (size,) * len(names), "float32", names, spec)


def words(array: Array) -> list[tuple[int | None, str, str]]:
    ledger = ledger_of(array, MESH, RULES)
    assert ledger is not None
    return [(entry.rule, entry.linen, entry.nnx) for entry in ledger.entries]


def test_every_rule_is_there_in_order_with_both_outcomes() -> None:
    assert words(array("embed", "hidden", "layer", "vocab", None)) == [
        (0, "taken", "passed over: rule 4, embed → data, comes later and replaces it"),
        (
            1,
            "passed over: mesh axis model is taken by embed (dimension 0) through rule 1, embed → model",
            "passed over: rule 3, hidden → one, comes later and replaces it",
        ),
        (
            2,
            "taken. Mesh axis one has size 1 and splits nothing",
            "taken. Mesh axis one has size 1 and splits nothing",
        ),
        (3, "passed over: rule 1, embed → model, had settled it", "taken"),
        (
            4,
            "taken: explicitly none, so it stays whole",
            "taken: explicitly none, so it stays whole",
        ),
        (
            None,
            "no rule for vocab, so it stays whole",
            "no rule for vocab, which is taken for a mesh axis",
        ),
        (None, "no logical axis, so it stays whole", "no logical axis, so it stays whole"),
    ]


def test_both_specs_and_what_jax_would_say_to_nnx() -> None:
    ledger = ledger_of(array("embed", "vocab", spec=(("model",), ("one",))), MESH, RULES)
    assert ledger.linen == (("model",), None) and ledger.nnx == (("data",), ("vocab",))
    assert ledger.follows is True, "an axis of size 1 splits nothing"
    assert ledger.nnx_refusals == ("vocab is not an axis of the mesh, which JAX refuses",)
    assert ledger_of(array("embed", spec=(("data",),)), MESH, RULES).follows is False
    assert ledger_of(array("embed", spec=(("data",),)), MESH, RULES, "nnx").follows is True


def test_the_entry_of_a_rule_names_problems_of_the_mesh() -> None:
    ledger = ledger_of(array("embed", size=6), MESH, RULES)
    assert ledger.entries[0].linen == "taken. Its size 6 is not divisible by 4, which JAX refuses"
    ledger = ledger_of(array("embed"), MESH, (("embed", ("dat",)),))
    assert ledger.entries[0].linen == "taken. The mesh has no axis dat"


def test_a_name_that_occurs_twice_is_refused_by_linen_alone() -> None:
    ledger = ledger_of(array("embed", "embed"), MESH, RULES)
    assert ledger.linen is None and "occurs twice" in ledger.linen_refusal
    assert ledger.nnx == (("data",), ("data",))
    assert ledger.nnx_refusals == ("mesh axis data would split two dimensions, which JAX refuses",)


def test_what_is_unknown_has_no_ledger() -> None:
    assert ledger_of(replace(array("embed"), logical_axes=None), MESH, RULES) is None
    assert ledger_of(array("embed"), MESH, None) is None
    shapeless = Array("w", "params", None, "float32", ("embed",), (("model",),))
    assert ledger_of(shapeless, MESH, RULES).follows is True
    assert ledger_of(array("embed", spec=(None,)), None, RULES).follows is None


@pytest.mark.parametrize(
    "text",
    [
        "batch=data,embed=fsdp+tensor,layer=",
        " batch = data ; embed = fsdp + tensor\nlayer=None ",
        '[["batch", "data"], ["embed", ["fsdp", "tensor"]], ["layer", null]]',
        "[['batch', 'data'], ['embed', ['fsdp', 'tensor']], ['layer', []]]",
        "(('batch', 'data'), ('embed', ('fsdp', 'tensor')), ('layer', None))",
        '{"batch": "data", "embed": ["fsdp", "tensor"], "layer": null}',
    ],
)
def test_rules_are_read_as_people_write_them(text: str) -> None:
    assert parse(text) == (("batch", ("data",)), ("embed", ("fsdp", "tensor")), ("layer", ()))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batch", "rules has 'batch', but a rule is a logical axis, =, and mesh axes"),
        ("[['a', {'x': 'y'}]]", "must go to a mesh axis, a list of them or null"),
        ("[['a']]", "a rule is [logical axis, mesh axes]"),
        ("[1, 2]", "a rule is [logical axis, mesh axes]"),
        ("['a'", "rules cannot be read"),
        ("[['a', open('x')]]", "rules cannot be read"),
        ("[" * 500 + "]" * 500, "nested too deeply"),
        ('[["a", NaN]]', "NaN"),
        ('{"a": "x", "a": "y"}', "twice"),
        ("a=b," * 1001, "rules has 1,001 entries, at most 1,000 are allowed"),
        ("a=b" * 40_000, "characters, at most 100,000 are allowed"),
    ],
)
def test_what_are_no_rules_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("layout", "rules"),
    [
        (None, None),
        ({}, None),
        ({"rules": {"a": "x"}}, None),
        ({"rules": [["a", 3]]}, None),
        ({"rules": [["a", ["x"]], ["b", None], ["c", "y"]]}, (("a", ("x",)), ("b", ()), ("c", ("y",)))),
        ({"rules": []}, ()),
    ],
)  # fmt: skip
def test_the_rules_of_a_snapshot_are_those_of_its_layout(layout, rules) -> None:
    snapshot = Snapshot(Source("capture", None, "2026-01-01"), layout, MESH, ())
    assert recorded(snapshot) == rules
    json.dumps(layout)
