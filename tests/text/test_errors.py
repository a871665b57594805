"""The allowed names in error messages."""

from __future__ import annotations

import datetime

import pytest

from inspector.text.errors import LONGEST_SENTENCE, InvalidInput, bounded, choices, file_name, shown


def test_few_names_are_listed_and_of_many_the_most_similar() -> None:
    assert choices("x", ["a", "b"]) == "one of a, b"
    many = [f"all-reduce.{number}" for number in range(2_000)]
    result = choices("all-reduce.1234x", many)
    assert "2,000" in result and "all-reduce.1234" in result and result.count("all-reduce") == 3
    assert "all-reduce.0" in choices("", many)


def test_an_empty_path_is_visible() -> None:
    assert file_name("") == "''" and file_name("a.json") == "a.json"


@pytest.mark.parametrize("name", ["x" * 60_000, "a-" * 30_000, "word " * 10_000, "x" * 21 + " "])
def test_a_long_name_is_shortened_and_what_is_allowed_is_kept(name: str) -> None:
    sentence = str(InvalidInput(f"a.json: model is {name * 20}, but must be one of mlp, moe"))
    assert len(sentence) <= LONGEST_SENTENCE
    assert sentence.startswith("a.json: model is ") and sentence.endswith(" one of mlp, moe")


def test_a_short_sentence_is_kept() -> None:
    sentence = "x" * LONGEST_SENTENCE
    assert bounded(sentence) == sentence


def test_several_sentences_are_bounded_one_by_one() -> None:
    text = str(InvalidInput(*[f"field{number} is {'x' * 900}" for number in range(9)]))
    assert len(text) < 6 * LONGEST_SENTENCE and text.endswith("; and 4 more")
    assert all(f"field{number} is " in text for number in range(5))


def test_every_value_can_be_shown() -> None:
    assert shown(10**9_000) == f"an integer of {(10**9_000).bit_length():,} bits"
    assert shown(datetime.date(2001, 1, 1)) == "'2001-01-01'"
    assert shown(10**4_000) == "1" + "0" * 58 + "…" and shown("x" * 10**6) == "'" + "x" * 58 + "…"
    assert shown((10**9_000,)) == "a tuple"
