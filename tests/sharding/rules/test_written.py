"""Rules as people write them elsewhere: JSON, Python, YAML's lists, a layout's own text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector.sharding.rules import written
from inspector.text.errors import InvalidInput

pytestmark = pytest.mark.close_to_jax

RULES = (("batch", ("data", "fsdp")), ("embed", ()), ("batch", ("data",)))


@pytest.mark.parametrize(
    "text",
    [
        "batch=data+fsdp, embed=, batch=data",
        "batch=data+fsdp\nembed=None\nbatch=data",
        '[["batch", ["data", "fsdp"]], ["embed", null], ["batch", "data"]]',
        "[['batch', ['data', 'fsdp']], ['embed', []], ['batch', 'data']]",
        # As Black formats Python, with the name in the file.
        '(\n    ("batch", ("data", "fsdp")),\n    ("embed", None),  # whole\n    ("batch", "data"),\n)',
        '[["batch", ["data", "fsdp"]], ["embed", None], ["batch", "data"]]',
        "RULES = (('batch', ('data', 'fsdp')), ('embed', None), ('batch', 'data'))",
        "RULES: LogicalRules = [('batch', ('data', 'fsdp')), ('embed', None), ('batch', 'data')]",
        # As in MaxText's base.yml, where null, comments and names without quotes are possible.
        "logical_axis_rules: [\n  ['batch', ['data', 'fsdp']], # both\n  ['embed', null],\n"
        "  ['batch', 'data'],\n]",
        "[[batch, [data, fsdp]], [embed, null], [batch, data]]",
        "\ufeff[['batch', ['data', 'fsdp']], ['embed', []], ['batch', 'data']]",
    ],
)
def test_all_forms_say_the_same(text: str) -> None:
    assert written.parse(text) == RULES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"batch": "data", "batch": "fsdp"}', "'batch' twice in one object"),
        ("{'batch': 'data', 'batch': 'fsdp'}", "'batch' twice in one object"),
        ("[('batch', P('data'))]", "cannot be read"),
        ('[("batch", P("data"))]', "cannot be read"),
        ('[["batch", "data"]', "is not JSON"),
        ("[('batch', 'da\\nta')]", "cannot be read"),
        ("[('batch', '\\ud800')]", "cannot be read"),
        ("[['', 'data']]", "without a name"),
        ("=data", "without a name"),
        ("[['batch', ['']]]", "without a name"),
        ("batch: data\nembed: [fsdp, tensor]", "a rule is a logical axis, =, and mesh axes"),
        ("[{**a}]", "is not JSON"),
        ("[" + "1+" * 40_000 + "1]", "cannot be read|is not JSON"),
        ("[" + "-" * 90_000 + "1]", "cannot be read|is not JSON"),
    ],
)
def test_what_is_none_of_them_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        written.parse(text)


names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda name: name not in ("None",))
rules = st.lists(st.tuples(names, st.lists(names, max_size=3)), max_size=5)


@for_all(rules)
def test_json_and_python_are_read_as_written(pairs: list[tuple[str, list[str]]]) -> None:
    expected = tuple((name, tuple(axes)) for name, axes in pairs)
    as_tuples = tuple((name, tuple(axes) or None) for name, axes in pairs)
    for text in (json.dumps(pairs), repr(pairs), repr(as_tuples), f"RULES = {as_tuples!r}"):
        assert written.parse(text) == expected


@for_all(st.text("[](){},:='\"ab# \n\\*+-N", max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        assert all(isinstance(axes, tuple) for _, axes in written.parse(text))
    except InvalidInput as refused:
        assert "\n" not in str(refused)
