"""Literals are read as Python reads them, without its parser."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.errors import InvalidInput
from inspector.core.rules import written

pytestmark = pytest.mark.close_to_jax

names = st.text("ab_c é#[](),:=-", max_size=6)
values = st.recursive(
    names | st.none(), lambda inner: st.lists(inner, max_size=4) | st.lists(inner).map(tuple)
)
lists = st.lists(values, max_size=5)


def as_lists(value: Any) -> Any:
    return [as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def depth(value: Any) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, (list, tuple)) else 0


@given(lists)
def test_lists_are_read_as_python_and_json_read_them(value: list[Any]) -> None:
    for text in (repr(value), repr(tuple(value)), json.dumps(value, ensure_ascii=False)):
        if depth(value) > written.DEEPEST:
            with pytest.raises(InvalidInput, match="too deeply"):
                written.literal(text, "it")
        else:
            assert written.literal(text, "it") == as_lists(value)


@given(st.text("[](){},:'\"a1 #\n-_", max_size=30))
def test_what_python_does_not_read_is_refused(inside: str) -> None:
    text = f"[{inside}]"
    try:
        value = written.literal(text, "it")
    except ValueError:
        return
    try:
        expected = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        # A number with a leading zero, or a list as a key.
        assert "0" in text or "1" in text or "{" in text, text
        return
    assert not isinstance(expected, (list, tuple)) or len(value) == len(expected)


def test_brackets_around_one_value_are_no_tuple() -> None:
    assert written.literal("[('a'), ('a',), ()]", "it") == ["a", ["a"], []]
    assert written.literal("{'a': 'b', c: None}", "it", names=True) == [["a", "b"], ["c", None]]
    for text in (
        "[a]",
        "[True]",
        "['a\\n']",
        "['a' 'b']",
        "[f('x')]",
        "['a'] + ['b']",
        "['a'",
        "x",
    ):
        with pytest.raises(ValueError):
            written.literal(text, "it")
