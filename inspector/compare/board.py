"""Layouts pinned side by side: up to eight Snapshots with names, one of them the baseline.

A Board is frozen: every change gives a new one. In full it is one JSON file of format `sharding-board`;
the short form, without what was run or compiled, is in `inspector.compare.board_link`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inspector.core import output, snapshot, strict_json, typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot
from inspector.core.typed_json import NonNegativeInt, Record
from inspector.machines import hardware

FORMAT = "sharding-board"
VERSION = 1
MOST_PINS = 8  # columns that a page 1440 wide can show beside each other
MOST_CHARACTERS = 60  # of a name: it heads a column
MOST_BYTES = 200 * 1024**2  # of a file, as the page's uploads
DEFAULT_CHIP = "v5p"


@dataclass(frozen=True)
class PinFile(Record):
    """A pin in a board's file. `snapshot` has the form of a Snapshot file."""

    name: str
    snapshot: dict[str, Any]


@dataclass(frozen=True)
class BoardFile(Record):
    """A board's file."""

    pins: tuple[PinFile, ...]
    baseline: NonNegativeInt = 0
    chip: str = DEFAULT_CHIP


@dataclass(frozen=True)
class Pin(Record):
    """A Snapshot and what a person calls it."""

    name: str
    snapshot: Snapshot


@dataclass(frozen=True)
class Board(Record):
    """Pins in the order in which they stand; `baseline` is the position of the one compared against.

    `chip` names the accelerator that modelled rows ask about. Names are distinct.
    """

    pins: tuple[Pin, ...] = ()
    baseline: int = 0
    chip: str = DEFAULT_CHIP

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pin.name for pin in self.pins)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return tuple(pin.snapshot for pin in self.pins)

    @property
    def named(self) -> tuple[tuple[str, Snapshot], ...]:
        """Each pin's name with its Snapshot."""
        return tuple(zip(self.names, self.snapshots, strict=True))

    def pinned(self, name: str, found: Snapshot) -> Board:
        """The board with one more pin, at its end.

        Raises:
          InvalidInput: the board is full, or the name cannot be used or is taken.
        """
        if len(self.pins) >= MOST_PINS:
            raise InvalidInput(
                f"the board has {MOST_PINS} layouts, which is all that it holds: "
                f"remove one before {shown(name.strip())} is pinned"
            )
        name = _checked_name(name, self.names)
        return replace(self, pins=(*self.pins, Pin(name, found)))

    def renamed(self, position: int, name: str) -> Board:
        """The board with another name at this position.

        Raises:
          InvalidInput: the name cannot be used or is taken.
        """
        others = [other for place, other in enumerate(self.names) if place != position]
        name = _checked_name(name, others)
        pins = list(self.pins)
        pins[position] = replace(pins[position], name=name)
        return replace(self, pins=tuple(pins))

    def moved(self, position: int, by: int) -> Board:
        """The board with a pin moved to the left (negative) or right; at an end it stays where it is."""
        order = list(range(len(self.pins)))
        target = min(max(position + by, 0), len(order) - 1)
        order.insert(target, order.pop(position))
        pins = tuple(self.pins[place] for place in order)
        return replace(self, pins=pins, baseline=order.index(self.baseline))

    def without(self, position: int) -> Board:
        """The board without a pin; if that was the baseline, the first of the others is."""
        pins = self.pins[:position] + self.pins[position + 1 :]
        baseline = 0 if position == self.baseline else self.baseline - (position < self.baseline)
        return replace(self, pins=pins, baseline=baseline)

    def compared_to(self, position: int) -> Board:
        """The board with another baseline."""
        return replace(self, baseline=position)

    def joined(self, other: Board) -> Board:
        """The board with the pins of another one after its own; names that are taken get a number.

        Raises:
          InvalidInput: together they are more than a board holds.
        """
        together = len(self.pins) + len(other.pins)
        if together > MOST_PINS:
            raise InvalidInput(
                f"{counted(len(other.pins), 'layout')} beside the {len(self.pins)} of the board make "
                f"{together}, but a board holds at most {MOST_PINS}"
            )
        joined = self
        for pin in other.pins:
            joined = joined.pinned(free_name(pin.name, joined.names), pin.snapshot)
        return joined

    def to_json(self) -> dict[str, Any]:
        pins = tuple(
            PinFile(pin.name, pin.snapshot.to_json(), extra=pin.extra) for pin in self.pins
        )
        file = BoardFile(pins, self.baseline, self.chip, extra=self.extra)
        return typed_json.encode_file(file, FORMAT, VERSION)


def free_name(name: str, taken: Collection[str]) -> str:
    """The name if it is not taken, else with the first number that makes it free: `FSDP (2)`."""
    name = " ".join(_printable(name).split())[:MOST_CHARACTERS].strip() or "layout"
    number, free = 1, name
    while free in taken:
        number += 1
        ending = f" ({number})"
        free = name[: MOST_CHARACTERS - len(ending)] + ending
    return free


def from_json(value: Any, what: str = "the board") -> Board:
    """Read a Board from parsed JSON.

    Raises:
      InvalidInput: it is not a board, is of a newer version, or a pin of it cannot be used.
    """
    file = typed_json.decode_file(BoardFile, value, what, FORMAT, VERSION)
    if len(file.pins) > MOST_PINS:
        raise InvalidInput(
            f"{what}: pins has {len(file.pins)} entries, but must have at most {MOST_PINS}"
        )
    board = Board(chip=_chip(file.chip, what), extra=file.extra)
    for number, pin in enumerate(file.pins):
        where = f"{what}: pins[{number}]"
        found = snapshot.from_json(pin.snapshot, f"{where}.snapshot")
        try:
            board = board.pinned(pin.name, found)
        except InvalidInput as refused:
            raise InvalidInput(f"{where}: {refused}") from None
        made = replace(board.pins[-1], extra=pin.extra)
        board = replace(board, pins=(*board.pins[:-1], made))
    most = max(len(file.pins), 1) - 1
    if file.baseline > most:
        raise InvalidInput(
            f"{what}: baseline is {file.baseline}, but must be the number of a pin, from 0 to {most}"
        )
    return replace(board, baseline=file.baseline)


def parse(content: bytes, what: str = "the board") -> Board:
    """Read a Board from the content of a file; a file of one Snapshot is a board of one pin.

    Raises:
      InvalidInput: it is neither; the sentence says what is wrong and where.
    """
    if len(content) > MOST_BYTES:
        raise InvalidInput(f"{what} has {len(content):,} bytes, at most {MOST_BYTES:,} are allowed")
    return _parsed(strict_json.parse(content, what), what)


def _parsed(value: Any, what: str) -> Board:
    if isinstance(value, dict) and value.get("format") == snapshot.FORMAT:
        name = free_name(Path(what).name.removesuffix(".json"), ())
        return Board().pinned(name, snapshot.from_json(value, what))
    return from_json(value, what)


def read(path: str | os.PathLike[str]) -> Board:
    """Read a board's file.

    Raises:
      InvalidInput: it cannot be opened or is not a board.
    """
    return _parsed(strict_json.read(path, MOST_BYTES), str(path))


def dumps(board: Board) -> str:
    """Return the board as JSON text, one line per pin."""
    return typed_json.dumps(board.to_json())


def write(board: Board, path: str | os.PathLike[str]) -> None:
    """Write a board's file whole or not at all.

    Raises:
      InvalidInput: the file cannot be written.
    """
    output.write_text(dumps(board), path)


def _checked_name(name: str, taken: Collection[str]) -> str:
    name = name.strip()
    if not name or len(name) > MOST_CHARACTERS or not name.isprintable():
        raise InvalidInput(
            f"the name is {shown(name)}, but must be 1 to {MOST_CHARACTERS} printable characters"
        )
    if name in taken:
        raise InvalidInput(
            f"the board has a layout called {shown(name)} already: choose another name"
        )
    return name


def _chip(name: Any, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidInput(f"{what}: chip is {shown(name)}, but must be text")
    try:
        return hardware.chip(name).name
    except InvalidInput as refused:
        raise InvalidInput(f"{what}: {refused}") from None


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)
