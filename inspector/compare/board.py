"""The Board: up to eight named Snapshots to compare, one of them the baseline, with aligned arrays.

A Board is frozen; every change returns a new one. Its file has the format `sharding-board`.

A link has only the layouts, `pin=FSDP~~mesh.8+rules.batch.data`, one `pin` per layout. A pin has a name,
`~~`, and the layout's fields that differ from the defaults, separated by spaces (`+` in a URL). A field is
`name.value`. The field `was.cpu` or similar marks a layout that was run or compiled. A server without the
result plans the layout.
"""

from __future__ import annotations

import urllib.parse
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inspector import layout as layouts
from inspector.files import strict_json
from inspector.layout import Layout, layout_of
from inspector.machines import hardware
from inspector.records import snapshot as snapshots
from inspector.records import typed_json
from inspector.records.snapshot import Snapshot
from inspector.records.typed_json import NonNegativeInt, Record
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted

# Give arrays the same paths in Snapshots that name them differently, and plans the same programs.
#
# A checkpoint of a Flax nnx state has the arrays at `…/kernel/value`, the live state at `…/kernel`.


# The keys under which nnx variables keep their values.
_ENDS = ("/value", "/raw_value")


def aligned(snapshots: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    """Return the Snapshots, without the ends of nnx variables in paths that another one has without them.

    Plans keep the programs that all of them have: a page partitions the others later.
    """
    plans = [{program.name for program in one.programs} for one in snapshots if one.source.kind == "plan"]
    if common := set.intersection(*plans) if plans else set():
        snapshots = [
            replace(one, programs=tuple(program for program in one.programs if program.name in common))
            if one.source.kind == "plan" and not common.issuperset(program.name for program in one.programs)
            else one
            for one in snapshots
        ]
    paths = [{array.path for array in snapshot.arrays} for snapshot in snapshots]
    count = Counter(path for paths_of_snapshot in paths for path in paths_of_snapshot)
    found = []
    for snapshot, own in zip(snapshots, paths, strict=True):
        shorter = {
            path: path.removesuffix(end)
            for end in _ENDS
            for path in own
            if path.endswith(end) and path.removesuffix(end) not in own
        }
        names = {path: short for path, short in shorter.items() if count[short]}
        if names:
            arrays = tuple(
                replace(array, path=names.get(array.path, array.path)) for array in snapshot.arrays
            )
            snapshot = replace(snapshot, arrays=arrays)
        found.append(snapshot)
    return tuple(found)


FORMAT = "sharding-board"
VERSION = 1
MOST_PINS = 8  # columns that fit on a page of 1440 px
MOST_CHARACTERS = 60  # of a name, which is a column heading
MOST_BYTES = strict_json.MOST_BYTES  # of a file; the limit of the page's upload


@dataclass(frozen=True)
class PinFile(Record):
    """A pin in a Board file. `snapshot` is the content of a Snapshot file."""

    name: str
    snapshot: dict[str, Any]


@dataclass(frozen=True)
class BoardFile(Record):
    """The content of a Board file."""

    pins: tuple[PinFile, ...]
    baseline: NonNegativeInt = 0
    chip: str | None = None


@dataclass(frozen=True)
class Pin(Record):
    """A Snapshot with a name."""

    name: str
    snapshot: Snapshot


@dataclass(frozen=True)
class Board(Record):
    """Pins in order, with distinct names. `baseline` is the position of a pin.

    `chip` is the name of the chip for memory and time of Snapshots without one; None for no chip.
    """

    pins: tuple[Pin, ...] = ()
    baseline: int = 0
    chip: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pin.name for pin in self.pins)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return tuple(pin.snapshot for pin in self.pins)

    @property
    def named(self) -> tuple[tuple[str, Snapshot], ...]:
        return tuple(zip(self.names, self.snapshots, strict=True))

    def aligned(self) -> Board:
        """Return the Board with equal paths for arrays that its Snapshots name differently."""
        snapshots = aligned(self.snapshots)
        pins = (replace(pin, snapshot=snapshot) for pin, snapshot in zip(self.pins, snapshots, strict=True))
        return replace(self, pins=tuple(pins))

    def pinned(self, name: str, snapshot: Snapshot) -> Board:
        """Return the Board with one more pin at the end.

        Raises:
          InvalidInput: if the Board is full, or the name is invalid or taken.
        """
        if len(self.pins) >= MOST_PINS:
            raise InvalidInput(
                f"the comparison already has {MOST_PINS} layouts: remove one to pin {shown(name.strip())}"
            )
        name = _checked_name(name, self.names)
        return replace(self, pins=(*self.pins, Pin(name, snapshot)))

    def renamed(self, position: int, name: str) -> Board:
        """Return the Board with another name at this position.

        Raises:
          InvalidInput: if the name is invalid or taken.
        """
        others = [other for place, other in enumerate(self.names) if place != position]
        name = _checked_name(name, others)
        pins = list(self.pins)
        pins[position] = replace(pins[position], name=name)
        return replace(self, pins=tuple(pins))

    def moved(self, position: int, by: int) -> Board:
        """Return the Board with a pin moved left (negative) or right, at most to the end."""
        order = list(range(len(self.pins)))
        target = min(max(position + by, 0), len(order) - 1)
        order.insert(target, order.pop(position))
        pins = tuple(self.pins[place] for place in order)
        return replace(self, pins=pins, baseline=order.index(self.baseline))

    def without(self, position: int) -> Board:
        """Return the Board without a pin. If it was the baseline, the first pin becomes the baseline."""
        pins = self.pins[:position] + self.pins[position + 1 :]
        baseline = 0 if position == self.baseline else self.baseline - (position < self.baseline)
        return replace(self, pins=pins, baseline=baseline)

    def compared_to(self, position: int) -> Board:
        """Return the Board with another baseline."""
        return replace(self, baseline=position)

    def joined(self, other: Board) -> Board:
        """Return the Board with the pins of another one at the end. Taken names get a number.

        Raises:
          InvalidInput: if there are too many pins.
        """
        together = len(self.pins) + len(other.pins)
        if together > MOST_PINS:
            raise InvalidInput(
                f"{counted(len(other.pins), 'layout')} and the {len(self.pins)} of the comparison make "
                f"{together}, but must be at most {MOST_PINS}"
            )
        joined = self
        for pin in other.pins:
            joined = joined.pinned(free_name(pin.name, joined.names), pin.snapshot)
        return joined

    def to_json(self) -> dict[str, Any]:
        pins = tuple(PinFile(pin.name, pin.snapshot.to_json(), extra=pin.extra) for pin in self.pins)
        file = BoardFile(pins, self.baseline, self.chip, extra=self.extra)
        return typed_json.encode_file(file, FORMAT, VERSION)


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number if it is taken: `FSDP (2)`."""
    name = " ".join(_printable(name).split())[:MOST_CHARACTERS].strip() or "layout"
    number, free = 1, name
    while free in taken:
        number += 1
        ending = f" ({number})"
        free = name[: MOST_CHARACTERS - len(ending)] + ending
    return free


def from_json(value: Any, what: str = "the comparison") -> Board:
    """Read a Board from parsed JSON.

    Raises:
      InvalidInput: if it is not a Board, has a newer version, or has an invalid pin.
    """
    file = typed_json.decode_file(BoardFile, value, what, FORMAT, VERSION)
    if len(file.pins) > MOST_PINS:
        raise InvalidInput(f"{what}: pins has {len(file.pins)} entries, but must have at most {MOST_PINS}")
    board = Board(chip=_chip(file.chip, what), extra=file.extra)
    for number, pin in enumerate(file.pins):
        where = f"{what}: pins[{number}]"
        snapshot = snapshots.from_json(pin.snapshot, f"{where}.snapshot")
        try:
            board = board.pinned(pin.name, snapshot)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error}") from None
        made = replace(board.pins[-1], extra=pin.extra)
        board = replace(board, pins=(*board.pins[:-1], made))
    most = max(len(file.pins), 1) - 1
    if file.baseline > most:
        raise InvalidInput(
            f"{what}: baseline is {file.baseline}, but must be the number of a pin, from 0 to {most}"
        )
    return replace(board, baseline=file.baseline)


def parse(content: bytes, what: str = "the comparison") -> Board:
    """Read a Board from the content of a file. A Snapshot file is a Board with one pin.

    Raises:
      InvalidInput: if it is neither.
    """
    if len(content) > MOST_BYTES:
        raise InvalidInput(f"{what} has {len(content):,} bytes, but must have at most {MOST_BYTES:,}")
    value = strict_json.parse(content, what)
    if isinstance(value, dict) and value.get("format") == snapshots.FORMAT:
        name = free_name(Path(what).name.removesuffix(".json"), ())
        return Board().pinned(name, snapshots.from_json(value, what))
    return from_json(value, what)


def dumps(board: Board) -> str:
    """Return the board as JSON text, one line per pin."""
    return typed_json.dumps(board.to_json())


def _checked_name(name: str, taken: Collection[str]) -> str:
    name = name.strip()
    if not name or len(name) > MOST_CHARACTERS or not name.isprintable():
        raise InvalidInput(
            f"the name is {shown(name)}, but must be 1 to {MOST_CHARACTERS} printable characters"
        )
    if name in taken:
        raise InvalidInput(f"the name {shown(name)} is taken: choose another")
    return name


def _chip(name: str | None, what: str) -> str | None:
    if name is None:
        return None
    try:
        return hardware.chip(name).name
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


PARAMETERS = ("pin", "baseline", "chip")

_BETWEEN = "~~"
_WAS = "was"
_KINDS = ("cpu", "local", "tpu", "gpu")

Query = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class LinkedPin:
    """A pin in a link. `was` is the kind of its Snapshot if it was run or compiled."""

    name: str
    layout: Layout
    was: str | None = None


@dataclass(frozen=True)
class Linked:
    """The content of a link. `problems` contains a sentence for each invalid part."""

    pins: tuple[LinkedPin, ...]
    baseline: str | None
    chip: str | None
    problems: tuple[str, ...]


def to_query(board: Board) -> dict[str, list[str]]:
    """Return the URL parameters of a Board. Pins without a layout are left out."""
    pins = [
        pin_text(pin.name, layout, pin.snapshot.source.kind)
        for pin in board.pins
        if (layout := layout_of(pin.snapshot)) is not None
    ]
    query = {"pin": pins} if pins else {}
    if pins and board.baseline:
        query["baseline"] = [board.pins[board.baseline].name]
    if board.chip is not None:
        query["chip"] = [board.chip]
    return query


def not_in_link(board: Board) -> tuple[str, ...]:
    """Return the names of the pins that a link cannot contain."""
    return tuple(pin.name for pin in board.pins if layout_of(pin.snapshot) is None)


def only_planned_in_link(board: Board) -> tuple[str, ...]:
    """Return the names of the pins that were run or compiled, which the link only plans."""
    return tuple(
        pin.name
        for pin in board.pins
        if pin.snapshot.source.kind != "plan" and layout_of(pin.snapshot) is not None
    )


def pin_text(name: str, layout: Layout, kind: str) -> str:
    """Return one pin for a URL, before percent-encoding."""
    fields = [f"{field}.{_quoted(value)}" for field, value in layouts.to_query(layout).items()]
    if kind in _KINDS:
        fields.append(f"{_WAS}.{kind}")
    return f"{name}{_BETWEEN}{' '.join(fields)}"


def parse_link(query: Query) -> Linked:
    """Read the URL parameters of a Board. Invalid parts become problems; the rest is used."""
    problems = [
        f"the link has the parameter {shown(key)}, but must only have {', '.join(PARAMETERS)}"
        for key in query
        if key not in PARAMETERS
    ]
    pins: list[LinkedPin] = []
    texts = query.get("pin", ())
    for text in texts[:MOST_PINS]:
        try:
            pin = _parse_pin(text)
        except InvalidInput as error:
            problems.append(str(error))
            continue
        name = free_name(pin.name, [other.name for other in pins])
        pins.append(replace(pin, name=name))
    if len(texts) > MOST_PINS:
        problems.append(
            f"the link has {len(texts)} pins, but must have at most {MOST_PINS}: the first are shown"
        )
    return Linked(
        tuple(pins),
        _last(query, "baseline"),
        _chip_of_link(_last(query, "chip"), problems),
        tuple(problems),
    )


def _parse_pin(text: str) -> LinkedPin:
    name, separator, rest = text.rpartition(_BETWEEN)
    if not separator:
        raise InvalidInput(
            f"pin is {shown(text)}, but must be a name, {_BETWEEN} and a layout, such as FSDP{_BETWEEN}mesh.8"
        )
    fields: dict[str, str] = {}
    for field in rest.split():
        key, point, value = field.partition(".")
        if not point or key in fields:
            raise InvalidInput(
                f"pin {shown(name)} has {shown(field)}, but must have each field once, such as mesh.2x4"
            )
        fields[key] = urllib.parse.unquote(value)
    was = fields.pop(_WAS, None)
    parsed = layouts.parse(fields)
    if parsed.value is None:
        raise InvalidInput(f"pin {shown(name)} is invalid: {'; '.join(parsed.problems.values())}")
    return LinkedPin(free_name(name, ()), parsed.value, was if was in _KINDS else None)


def _quoted(value: str) -> str:
    """Return a value with escaped separators."""
    for mark, code in (("%", "%25"), (" ", "%20"), (_BETWEEN, "~%7E")):
        value = value.replace(mark, code)
    return value


def _last(query: Query, key: str) -> str | None:
    values = query.get(key, ())
    return values[-1] if values else None


def _chip_of_link(name: str | None, problems: list[str]) -> str | None:
    if name is None:
        return None
    try:
        return hardware.chip(name).name
    except InvalidInput as error:
        problems.append(str(error))
        return None
