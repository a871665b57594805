"""A board's link: it brings back every layout exactly, and says what in it cannot be used."""

from __future__ import annotations

import urllib.parse
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from inspector import layout as layouts
from inspector.compare import board as boards
from inspector.compare.board import Board, free_name
from inspector.layout import Layout
from inspector.layout.presets import fitting
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Snapshot, Source


def laid_out() -> list[Layout]:
    """Layouts of all models in all of their presets."""
    made = []
    for model in CATALOGUE:
        layout = layouts.parse({"model": model}).unwrap()
        made += [layout, *(preset.applied_to(layout) for preset in fitting(layout.entry))]
    return made


LAYOUTS = laid_out()


def found(layout: Layout | None, kind: str = "plan") -> Snapshot:
    source = Source(kind, None, "2026-01-01T00:00:00+00:00")
    plain = None if layout is None else layout.to_json()
    return Snapshot(source, plain, None if layout is None else layout.mesh(), ())


def opened(query: dict[str, list[str]]) -> boards.Linked:
    """The query as a browser sends it, read again."""
    return boards.parse_link(urllib.parse.parse_qs(urllib.parse.urlencode(query, doseq=True)))


@given(
    some.lists(some.tuples(some.text(max_size=70), some.sampled_from(LAYOUTS)), max_size=8),
    some.integers(0, 7),
)
def test_a_link_keeps_the_layouts(pins: list[tuple[str, Layout]], baseline: int) -> None:
    board = Board()
    for name, layout in pins:
        board = board.pinned(free_name(name, board.names), found(layout))
    if pins:
        board = board.compared_to(baseline % len(pins))
    linked = opened(boards.to_query(replace(board, chip="h100")))
    assert linked.problems == ()
    assert [(pin.name, pin.layout) for pin in linked.pins] == [
        (pin.name, layout) for pin, (_, layout) in zip(board.pins, pins, strict=True)
    ]
    assert linked.baseline == (board.names[board.baseline] if board.baseline else None)
    assert linked.chip == "h100"


def test_a_link_can_be_read() -> None:
    layout = layouts.parse({"mesh": "8", "rules": "batch=data,embed=data"}).unwrap()
    query = boards.to_query(Board().pinned("FSDP on 8", found(layout)))
    text = urllib.parse.urlencode(query, doseq=True)
    assert text == "pin=FSDP+on+8~~mesh.8+rules.batch.data~embed.data"


def test_a_link_marks_runs_and_leaves_out_pins_without_a_layout() -> None:
    board = (
        Board()
        .pinned("ran", found(LAYOUTS[0], "cpu"))
        .pinned("checkpoint", found(None, "orbax"))
        .pinned("broken", replace(found(None, "capture"), layout={"model": "<b>"}))
    )
    (pin,) = opened(boards.to_query(board)).pins
    assert (pin.name, pin.was) == ("ran", "cpu")
    assert boards.not_in_link(board) == ("checkpoint", "broken")
    assert boards.only_planned_in_link(board) == ("ran",)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"pin": ["FSDP"]}, "pin is 'FSDP', but must be a name, ~~ and a layout"),
        ({"pin": ["a~~mesh"]}, "pin 'a' has 'mesh', but must have each field once"),
        ({"pin": ["a~~mesh.8 mesh.4"]}, "pin 'a' has 'mesh.4', but must have each field once"),
        ({"pin": ["a~~mesh.2x"]}, "pin 'a' is invalid: mesh is '2x', but must be axis sizes"),
        ({"pin": ["a~~colour.red"]}, "'colour' is not a field of model logical_mlp"),
        ({"pin": ["a~~model.os:system"]}, "pin 'a' is invalid: model"),
        ({"pin": ["a~~"] * 9}, "the link has 9 pins, but must have at most 8"),
        (
            {"colour": ["red"]},
            "has the parameter 'colour', but must only have pin, baseline, chip",
        ),
        ({"chip": ["abacus"]}, "chip is 'abacus', but must be one of"),
    ],
)
def test_an_invalid_part_of_a_link_is_a_problem(query, sentence) -> None:
    linked = boards.parse_link({"pin": ["good~~mesh.8"]} | query if "pin" not in query else query)
    assert len(linked.problems) == 1 and sentence in linked.problems[0]
    mixed = boards.parse_link(query | {"pin": ["good~~mesh.8", *query.get("pin", ())]})
    assert "good" in [pin.name for pin in mixed.pins]


def test_two_pins_of_one_name_get_numbers() -> None:
    linked = boards.parse_link({"pin": ["a~~", "a~~mesh.8"]})
    assert [pin.name for pin in linked.pins] == ["a", "a (2)"]
