"""The allowed names in error messages."""

from __future__ import annotations

from inspector.core.errors import choices, file_name


def test_few_names_are_listed_and_of_many_the_most_similar() -> None:
    assert choices("x", ["a", "b"]) == "one of a, b"
    many = [f"all-reduce.{number}" for number in range(2_000)]
    found = choices("all-reduce.1234x", many)
    assert "2,000" in found and "all-reduce.1234" in found and found.count("all-reduce") == 3
    assert "all-reduce.0" in choices("", many)


def test_an_empty_path_is_visible() -> None:
    assert file_name("") == "''" and file_name("a.json") == "a.json"
