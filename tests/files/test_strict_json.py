"""Tests of strict_json: standard JSON is parsed as Python parses it, anything else is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.files import strict_json
from inspector.text.errors import InvalidInput

characters = st.characters(exclude_categories=("Cs",))
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(characters),
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(characters), inner)),
)


@pytest.mark.nightly
@given(json_values, st.booleans(), st.booleans())
def test_parse_inverts_dumps(value: Any, as_bytes: bool, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped, allow_nan=False)
    assert strict_json.parse(text.encode() if as_bytes else text, "it") == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["not JSON", "line 1, column 1"]),
        ("{", ["not JSON", "line 1, column 2"]),
        ('{"a": 1,\n "b": }', ["not JSON", "line 2, column 7"]),
        ("[1] [2]", ["not JSON", "line 1, column 5"]),
        ("[NaN]", ["NaN", "JSON does not allow"]),
        ('{"a": -Infinity}', ["-Infinity", "JSON does not allow"]),
        ("[1e999]", ["'1e999'", "too large"]),
        ("[-1e999]", ["'-1e999'", "too large"]),
        ("[" + "9" * 5000 + "]", ["number", "cannot be read"]),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', ["'b'", "twice in one object"]),
        ('{"a": 1, "\\u0061": 1}', ["'a'", "twice in one object"]),
        ("[" * 100_000 + "]" * 100_000, ["nested too deeply"]),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, ["nested too deeply"]),
        ("[" * 97 + "]" * 97, ["nested too deeply", "96 levels"]),
        ('["\\ud800"]', ["lone surrogate"]),
        ('{"\\uDFFF": 1}', ["lone surrogate"]),
        ('["\ud800"]', ["lone surrogate"]),
        (b'["\xff"]', ["not UTF-8", "byte 2"]),
        ("[1]".encode("utf-16"), ["not UTF-8", "byte 0"]),
        ("[1]".encode("utf-32"), ["not UTF-8", "byte 0"]),
        ('["é"]'.encode("latin-1"), ["not UTF-8", "byte 2"]),
        ("[1]".encode("utf-8-sig"), ["not JSON"]),
        (b'["\xed\xa0\x80"]', ["not UTF-8", "byte 2"]),
        (b"[1]\x00", ["not JSON"]),
        (b"\x80\x04]\x94.", ["not UTF-8"]),
    ],
    ids=lambda part: repr(part)[:30],
)
def test_other_json_is_refused(text: str | bytes, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        strict_json.parse(text, "a.json")
    sentence = str(refused.value)
    for word in ("a.json", *words):
        assert word in sentence
    assert "\n" not in sentence and len(sentence) < 300


def test_a_complete_surrogate_pair_is_accepted() -> None:
    assert strict_json.parse('["\\ud83d\\ude42", "\\\\ud800"]', "it") == ["🙂", "\\ud800"]


@given(st.one_of(st.text(), st.binary(), st.text('[]{}",:0123456789eE+-.NaInfity\\u \n')))
def test_any_text_is_parsed_or_refused(text: str | bytes) -> None:
    try:
        value = strict_json.parse(text, "it")
    except InvalidInput as refused:
        assert "\n" not in str(refused)
    else:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_finite_numbers_are_exact(number: float) -> None:
    value = strict_json.parse(repr(number), "it")
    assert value == number and math.copysign(1, value) == math.copysign(1, number)


def test_the_deepest_allowed_value_can_be_written_again() -> None:
    value = strict_json.parse("[" * 96 + "]" * 96, "it")
    assert strict_json.parse(json.dumps(value), "it") == value


def test_too_many_different_keys_are_refused_before_they_are_parsed() -> None:
    """Each needs 200 bytes: 6 million of them, 57 MB of text, took 1.5 GB."""
    most = strict_json.MOST_KEYS
    text = "{" + ",".join(f'"{number}":0' for number in range(most + 1)) + "}"
    with pytest.raises(InvalidInput, match="different keys"):
        strict_json.parse(text, "it")
    # Strings that are values, also with text like a key in them, do not count, and repeated keys count once.
    row = '{"a": "\\"b\\": ", "c": 1}'
    rows = strict_json.parse(f"[{','.join([row] * (most // 2 + 1))}]", "it")
    assert len(rows) == most // 2 + 1 and rows[0] == {"a": '"b": ', "c": 1}
