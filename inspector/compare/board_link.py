"""The layouts of a Board in a URL: `pin=FSDP~~mesh.8+rules.batch.data`, one `pin` per layout.

A pin has a name, `~~`, and the layout's fields that differ from the defaults, separated by spaces (`+` in a
URL). A field is `name.value`. The field `was.cpu` or similar marks a layout that was run or compiled. A
server without the result plans the layout.
"""

import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inspector import layout as layouts
from inspector.compare.board import MOST_PINS, Board, free_name
from inspector.layout import Layout, layout_of
from inspector.machines import hardware
from inspector.text.errors import InvalidInput, shown

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


def parse(query: Query) -> Linked:
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
        _chip(_last(query, "chip"), problems),
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


def _chip(name: str | None, problems: list[str]) -> str | None:
    if name is None:
        return None
    try:
        return hardware.chip(name).name
    except InvalidInput as error:
        problems.append(str(error))
        return None
