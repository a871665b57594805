"""The board: what may be pinned, what stays where, and its file."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from inspector.compare import board as boards
from inspector.compare.board import MOST_PINS, Board, free_name
from inspector.records import snapshot, typed_json
from inspector.records.snapshot import Snapshot, Source
from inspector.text.errors import InvalidInput
from tests.figures import samples

HOSTILE = "<img src=x onerror=alert(1)> $x^2$ [a](http://b.c) {{7*7}}"


def found(number: int = 0) -> Snapshot:
    """A Snapshot that differs from those of other numbers."""
    source = Source("plan", "plan", f"2026-01-{number + 1:02}T00:00:00+00:00")
    return Snapshot(source, None, samples.DEFAULT_MESH, samples.mlp_state())


def board_of(count: int) -> Board:
    board = Board()
    for number in range(count):
        board = board.pinned(f"layout {number}", found(number))
    return board


def refusal(what, *arguments) -> str:
    with pytest.raises(InvalidInput) as refused:
        what(*arguments)
    return str(refused.value)


def test_a_ninth_pin_is_rejected() -> None:
    board = board_of(MOST_PINS)
    assert "already has 8 layouts" in refusal(board.pinned, "one more", found())
    assert len(board.without(3).pinned("one more", found()).pins) == MOST_PINS


@pytest.mark.parametrize("name", ["", "   ", "x" * 61, "two\nlines", "a\x00b", "\u202egnp"])
def test_an_invalid_name_is_rejected(name: str) -> None:
    assert "must be 1 to 60 printable characters" in refusal(Board().pinned, name, found())


def test_names_are_distinct() -> None:
    board = board_of(2)
    assert "'layout 0' is taken" in refusal(board.pinned, " layout 0 ", found())
    assert "'layout 0' is taken" in refusal(board.renamed, 1, "layout 0")
    assert board.renamed(0, "layout 0") == board, "its own name is not taken"


@given(some.text(max_size=80), some.lists(some.text(max_size=70), max_size=4))
def test_a_free_name_can_always_be_pinned(wanted: str, taken: list[str]) -> None:
    board, pinned = Board(), found()
    for name in taken:
        board = board.pinned(free_name(name, board.names), pinned)
    name = free_name(wanted, board.names)
    assert board.pinned(name, pinned).names[-1] == name


@given(some.data())
def test_the_baseline_follows_its_pin(data: some.DataObject) -> None:
    count = data.draw(some.integers(1, MOST_PINS))
    place = some.integers(0, count - 1)
    board = board_of(count).compared_to(data.draw(place))
    kept = board.pins[board.baseline]
    moved = board.moved(data.draw(place), data.draw(some.integers(-9, 9)))
    assert moved.pins[moved.baseline] == kept
    assert sorted(moved.names) == sorted(board.names)
    gone = data.draw(place)
    less = moved.without(gone)
    assert less.pins == tuple(pin for pin in moved.pins if pin is not moved.pins[gone])
    if gone != moved.baseline:
        assert less.pins[less.baseline] == kept
    else:
        assert less.baseline == 0


def test_joining_two_boards_numbers_taken_names() -> None:
    joined = board_of(2).joined(board_of(3))
    assert joined.names == (*("layout 0", "layout 1", "layout 0 (2)", "layout 1 (2)", "layout 2"),)
    assert "make 9, but must be at most 8" in refusal(board_of(5).joined, board_of(4))


def test_a_file_keeps_everything() -> None:
    board = replace(board_of(3).renamed(1, HOSTILE).compared_to(2), chip="h100")
    content = boards.dumps(board)
    assert boards.parse(content.encode()) == board
    assert json.loads(content)["pins"][1]["name"] == HOSTILE


def test_unknown_keys_are_kept() -> None:
    plain = board_of(1).to_json() | {"notes": {"a": 1}}
    plain["pins"][0]["colour"] = "red"
    again = boards.from_json(plain)
    assert again.to_json() == plain


def test_a_snapshot_file_is_a_board_with_one_pin() -> None:
    opened = boards.parse(snapshot.dumps(found()).encode(), "mine.json")
    assert opened.names == ("mine",) and opened.snapshots == (found(),)


def changed(**parts: object) -> bytes:
    return json.dumps(board_of(2).to_json() | parts).encode()


PIN = {
    "name": "a",
    "snapshot": typed_json.encode(found()) | {"format": "sharding-snapshot", "version": 1},
}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not JSON"),
        (b"[]", 'must have "format": "sharding-board"'),
        (b"\xff\xfe", "is not UTF-8"),
        (b'{"format": NaN}', "contains NaN"),
        (changed(version=2), "this program reads up to version 1"),
        (changed(version="1"), "must have an integer from 1"),
        (changed(pins=None), "pins is null, but must be a list"),
        (changed(pins=[PIN] * 9), "pins has 9 entries, but must have at most 8"),
        (changed(pins=[PIN, PIN]), "pins[1]: the name 'a' is taken"),
        (changed(pins=[{"name": "a"}]), "pins[0].snapshot is missing"),
        (changed(pins=[PIN | {"name": 3}]), "pins[0].name is 3, but must be a string"),
        (changed(pins=[PIN | {"name": "a\nb"}]), "must be 1 to 60 printable characters"),
        (
            changed(pins=[PIN | {"snapshot": {}}]),
            "pins[0].snapshot is not a sharding-snapshot file",
        ),
        (changed(baseline=2), "baseline is 2, but must be the number of a pin, from 0 to 1"),
        (changed(baseline=True), "baseline is true, but must be an integer"),
        (changed(chip="abacus"), "chip is 'abacus', but must be one of"),
        (changed(chip=[]), "chip is a list of 0, but must be a string"),
    ],
)
def test_an_invalid_file_is_rejected(content: bytes, sentence: str) -> None:
    said = refusal(boards.parse, content, "board.json")
    assert "board.json" in said and sentence in said and "\n" not in said
