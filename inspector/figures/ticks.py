"""The ticks of axes: labels that have room, and round numbers for linear and logarithmic axes.

Places are in the units of the axis, and texts are not escaped.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from inspector.figures import frame, labels

Ticks = tuple[list[float], list[str]]
NO_TICKS: Ticks = ([], [])

_GAP_PX = 5  # between neighboring labels
_LINE_PX = 14  # of labels below each other
_LEAST_PX = {False: 40, True: 24}  # between round numbers next to each other, and below each other

Text = Callable[[float], str]


def settings(places: Sequence[float], texts: Sequence[str]) -> dict[str, Any]:
    """Return the settings of an axis with these ticks. The texts, of one or more lines, are escaped here."""
    return {"tickvals": list(places), "ticktext": list(map(labels.lines, texts)), "tickangle": 0}


def every_nth(
    places: Sequence[float], texts: Sequence[str], px_per_unit: float = 1, *, upright: bool = False
) -> Ticks:
    """Label every place, every second, or every 4th, 8th, … so that labels have room.

    Args:
      px_per_unit: pixels per unit of the axis.
      upright: the labels are below each other.
    """
    pitch = min((b - a for a, b in itertools.pairwise(places)), default=math.inf) * px_per_unit
    room, step = room_px(texts, upright), 1
    while 0 < step * pitch < room:
        step *= 2
    return [round(place, 2) for place in places[::step]], list(texts[::step])


def of_borders(
    places: Sequence[float],
    texts: Sequence[str],
    px_per_unit: float = 1,
    *,
    upright: bool = False,
) -> Ticks:
    """Drop ticks that are too near to the previous one; keep the last one."""
    room = room_px(texts, upright) / px_per_unit
    kept: list[int] = []
    for number, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= room:
            kept.append(number)
    last = len(places) - 1
    if kept and kept[-1] != last:
        if len(kept) > 1 and places[last] - places[kept[-1]] < room:
            kept.pop()
        kept.append(last)
    return [round(places[number], 2) for number in kept], [texts[number] for number in kept]


def room_px(texts: Sequence[str], upright: bool = False) -> float:
    """Return the pixels from label to label."""
    if upright:
        return _LINE_PX
    return _GAP_PX + max((labels.width_px(text, frame.TICK_PX) for text in texts), default=0)


def linear(low: float, high: float, text: Text) -> dict[str, Any]:
    """Return range and ticks of a linear axis: about six steps of 1, 2 or 5 times a power of ten."""
    room = (high - low or high) * 0.06
    low, high = max(low - room, 0.0), high + room
    rough = (high - low) / 6
    power = 10 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
    places = [number * step for number in range(math.ceil(low / step), int(high / step) + 1)]
    return {"range": [low, high], **settings(places, list(map(text, places)))}


def logarithmic(
    low: float,
    high: float,
    length_px: float,
    text: Text,
    *,
    digits: Sequence[float] | None = (1, 2, 5),
    upright: bool = False,
) -> dict[str, Any]:
    """Return range and ticks of a logarithmic axis, with as many round numbers as have room.

    Args:
      low, high: the ends of the axis, as powers of ten.
      length_px: its length.
      text: from a number to its label.
      digits: the factors of powers of ten in these numbers. None means powers of two.
      upright: the axis is vertical.
    """
    base = 10.0 if digits else 2.0
    powers = [
        base**power
        for power in range(math.ceil(low / math.log10(base)), math.floor(high / math.log10(base)) + 1)
    ]
    multiples = [
        digit * 10.0**power
        for digit in sorted(digits or (), key=lambda digit: len(f"{digit:g}"))
        for power in sorted(range(math.floor(low) - 1, math.ceil(high) + 1), key=abs)
        if digit != 1 and low <= power + math.log10(digit) <= high
    ]
    px_per_decade = length_px / (high - low)

    def room(*numbers: float) -> float:
        return max(room_px(list(map(text, numbers)), upright), _LEAST_PX[upright])

    kept = powers[:: max(math.ceil(room(*powers) / px_per_decade / math.log10(base)), 1)]
    for number in multiples:
        if all(abs(math.log10(number / other)) * px_per_decade >= room(number, other) for other in kept):
            kept.append(number)
    places = sorted(kept)
    return {
        "type": "log",
        "range": [low, high],
        **settings(places, list(map(text, places))),
    }
