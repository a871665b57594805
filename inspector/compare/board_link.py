"""A board in a URL, as far as layouts go: `pin=FSDP~~mesh.8+rules.batch.data`, once for each pin.

A pin's text is its name, `~~`, and the fields of its layout that are not at their defaults, parted by
spaces, which a URL writes as `+`; a field is its name, a point and its value. The text of a layout that
was run or compiled ends with `was.cpu` or another kind: the link has only the layout, and whoever opens
it is told that what stands there is a plan.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inspector import layout as layouts
from inspector.compare.board import DEFAULT_CHIP, MOST_PINS, Board, free_name
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.machines import hardware

PARAMETERS = ("pin", "baseline", "chip")

_BETWEEN = "~~"
_WAS = "was"
_KINDS = ("cpu", "tpu", "gpu")

Query = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class LinkedPin:
    """A pin as a link has it; `was` is the kind of its Snapshot where that said more than a plan."""

    name: str
    layout: Layout
    was: str | None = None


@dataclass(frozen=True)
class Linked:
    """What a link says. `problems` are sentences about what in it cannot be used."""

    pins: tuple[LinkedPin, ...]
    baseline: str | None
    chip: str | None
    problems: tuple[str, ...]


def layout_of(found: Snapshot) -> Layout | None:
    """The layout that a Snapshot was made from; None if it has none, or one that cannot be read."""
    if found.layout is None:
        return None
    try:
        return layouts.from_json(found.layout)
    except InvalidInput:
        return None


def to_query(board: Board) -> dict[str, list[str]]:
    """The parameters of a board's URL; pins without a layout are not in it."""
    pins = [
        pin_text(pin.name, layout, pin.snapshot.source.kind)
        for pin in board.pins
        if (layout := layout_of(pin.snapshot)) is not None
    ]
    query = {"pin": pins} if pins else {}
    if pins and board.baseline:
        query["baseline"] = [board.pins[board.baseline].name]
    if board.chip != DEFAULT_CHIP:
        query["chip"] = [board.chip]
    return query


def not_in_link(board: Board) -> tuple[str, ...]:
    """The names of the pins that a link cannot say."""
    return tuple(pin.name for pin in board.pins if layout_of(pin.snapshot) is None)


def only_planned_in_link(board: Board) -> tuple[str, ...]:
    """The names of the pins that who opens the link sees as planned, without what was run or compiled."""
    return tuple(
        pin.name
        for pin in board.pins
        if pin.snapshot.source.kind != "plan" and layout_of(pin.snapshot) is not None
    )


def pin_text(name: str, layout: Layout, kind: str) -> str:
    """One pin as it stands in a URL, before it is percent-encoded."""
    fields = [f"{field}.{_quoted(value)}" for field, value in layouts.to_query(layout).items()]
    if kind in _KINDS:
        fields.append(f"{_WAS}.{kind}")
    return f"{name}{_BETWEEN}{' '.join(fields)}"


def parse(query: Query) -> Linked:
    """Read a board's URL. What is wrong in it is said, and the rest of it holds."""
    problems = [
        f"{shown(key)} is no part of a board's link, which has {', '.join(PARAMETERS)}"
        for key in query
        if key not in PARAMETERS
    ]
    pins: list[LinkedPin] = []
    texts = query.get("pin", ())
    for text in texts[:MOST_PINS]:
        try:
            pin = _parse_pin(text)
        except InvalidInput as refused:
            problems.append(str(refused))
            continue
        name = free_name(pin.name, [other.name for other in pins])
        pins.append(LinkedPin(name, pin.layout, pin.was))
    if len(texts) > MOST_PINS:
        problems.append(
            f"the link has {len(texts)} pins, but a board holds at most {MOST_PINS}: "
            "the first of them are shown"
        )
    return Linked(
        tuple(pins),
        _last(query, "baseline"),
        _chip(_last(query, "chip"), problems),
        tuple(problems),
    )


def _parse_pin(text: str) -> LinkedPin:
    name, separator, rest = text.rpartition(_BETWEEN)
    if not separator:
        raise InvalidInput(
            f"pin is {shown(text)}, but must be a name, {_BETWEEN} and a layout, "
            f"such as FSDP{_BETWEEN}mesh.8"
        )
    fields: dict[str, str] = {}
    for field in rest.split():
        key, point, value = field.partition(".")
        if not point or key in fields:
            raise InvalidInput(
                f"pin {shown(name)} has {shown(field)}, "
                "but must have each field once, such as mesh.2x4"
            )
        fields[key] = urllib.parse.unquote(value)
    was = fields.pop(_WAS, None)
    parsed = layouts.parse(fields)
    if parsed.value is None:
        raise InvalidInput(
            f"pin {shown(name)} cannot be used: {'; '.join(parsed.problems.values())}"
        )
    return LinkedPin(free_name(name, ()), parsed.value, was if was in _KINDS else None)


def _quoted(value: str) -> str:
    """A value without what parts the texts of a link."""
    for mark, code in (("%", "%25"), (" ", "%20"), (_BETWEEN, "~%7E")):
        value = value.replace(mark, code)
    return value


def _last(query: Query, key: str) -> str | None:
    values = query.get(key, ())
    return values[-1] if values else None


def _chip(name: str | None, problems: list[str]) -> str | None:
    if name is None:
        return None
    try:
        return hardware.chip(name).name
    except InvalidInput as refused:
        problems.append(str(refused))
        return None
