"""Literals of Python are read as Python reads them, without its parser."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.sharding.rules import written

pytestmark = pytest.mark.close_to_jax

names = st.text("ab_c é#[](),:=-", max_size=6)
values = st.recursive(
    names | st.none(), lambda inner: st.lists(inner, max_size=4) | st.lists(inner).map(tuple)
)
lists = st.lists(values, max_size=5)


def as_lists(value: Any) -> Any:
    return [as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


@given(lists)
def test_lists_are_read_as_python_and_json_read_them(value: list[Any]) -> None:
    for text in (repr(value), repr(tuple(value)), json.dumps(value, ensure_ascii=False)):
        assert json.loads(written.as_json(text)) == as_lists(value)


@given(st.text("[],'\"1 #\n-_", max_size=30))
def test_what_python_reads_too_has_the_same_value(inside: str) -> None:
    text = f"[{inside}]"
    try:
        value, expected = json.loads(written.as_json(text)), ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        return
    assert value == as_lists(expected)


def test_names_need_no_quotes_and_tuples_are_lists() -> None:
    assert json.loads(written.as_json("[('a'), ('a',), (), b]")) == [["a"], ["a"], [], "b"]
    assert json.loads(written.as_json("{'a': 'b', c: None,}  # last")) == {"a": "b", "c": None}
    for text in ("[True]", "['a\\n']", "['a' 'b']", "[f('x')]", "['a'] + ['b']", "['a'"):
        with pytest.raises(ValueError):
            json.loads(written.as_json(text))
