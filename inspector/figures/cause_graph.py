"""The path of a sharding as boxes and arrows: rule, source, operations, and the result."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from inspector.core.snapshot import Origin, PropagationStep
from inspector.figures import frame, labels, palette

_BOX_PX, _BOX_HEIGHT_PX, _GAP_PX, _LANE_PX = 150, 44, 26, 62
_FONT_PX = 11
_NARROW_PX = 560  # below it, boxes are stacked
_MOST_STACKED = 7


class _Box(NamedTuple):
    """A box: two lines of text, its outline, and its hover text."""

    title: str
    subtitle: str
    color: str
    hover: str


def cause_graph(
    origins: Sequence[Origin], target: str, source: str | None, *, width_px: int = 960
) -> go.Figure | None:
    """Return a lane for each origin, from its rule to the target; None without origins.

    Args:
      origins: the origins of the target's sharding.
      target: the collective or the array, such as `all-gather.7`.
      source: its source line.
    """
    if not origins:
        return None
    stacked = width_px < _NARROW_PX
    most = _MOST_STACKED if stacked else max(4, int((width_px + _GAP_PX) // (_BOX_PX + _GAP_PX)))
    lanes = [_lane(origin, target, source, most) for origin in origins]
    places, box_px, height = (_stacked if stacked else _side_by_side)(lanes, width_px)
    boxes = [box for lane in lanes for box in lane]
    placed = list(zip(boxes, [place for lane in places for place in lane], strict=True))
    trace = {
        "type": "scatter",
        "x": [x for _, (x, _) in placed],
        "y": [y for _, (_, y) in placed],
        "customdata": [box.hover for box in boxes],
        "mode": "markers",
        "marker": {"opacity": 0, "size": _BOX_HEIGHT_PX},
        "hovertemplate": frame.HOVER_TEXT,
    }
    return frame.plot(
        [trace],
        width_px,
        height,
        heading="Where the sharding comes from",
        notes=["rule, source, operations that propagate it, and the result"],
        annotations=[
            *(_text(box, x, y, box_px) for box, (x, y) in placed),
            *(_arrow(start, end, box_px) for lane in places for start, end in itertools.pairwise(lane)),
        ],
        shapes=[_outline(x, y, box_px, box.color) for box, (x, y) in placed],
        xaxis=frame.axis(range=[-2, width_px - 2], visible=False, fixedrange=True),
        yaxis=frame.axis(range=[-height, 0], visible=False, fixedrange=True),
    )


# The center of each box, by lane. Then the width of a box, and the height of all.
_Places = tuple[list[list[tuple[float, float]]], float, float]


def _side_by_side(lanes: Sequence[Sequence[_Box]], width_px: float) -> _Places:
    """Return places for lanes below each other, with the result in the last column."""
    columns = max(map(len, lanes))
    box_px = (width_px - (columns - 1) * _GAP_PX - 4) / columns
    places = []
    for row, lane in enumerate(lanes):
        used = [*range(len(lane) - 1), columns - 1]
        y = -row * _LANE_PX - _BOX_HEIGHT_PX / 2
        places.append([(column * (box_px + _GAP_PX) + box_px / 2, y) for column in used])
    return places, box_px, len(lanes) * _LANE_PX


def _stacked(lanes: Sequence[Sequence[_Box]], width_px: float) -> _Places:
    """Return places for boxes below each other, one lane after the other."""
    step = _BOX_HEIGHT_PX + _GAP_PX
    box_px = width_px - 4
    places: list[list[tuple[float, float]]] = []
    top = 0.0
    for lane in lanes:
        places.append([(box_px / 2, -top - place * step - _BOX_HEIGHT_PX / 2) for place in range(len(lane))])
        top += len(lane) * step
    return places, box_px, top


def _lane(origin: Origin, target: str, source: str | None, most: int) -> list[_Box]:
    """Return at most `most` boxes; operations in the middle are folded into one."""
    boxes, hue = [], palette.color_of_axis(origin.mesh_axis)
    if origin.rule is not None:
        boxes.append(_Box(origin.rule, "rule", hue, _hover(f"Rule {origin.rule}")))
    path, _, place = origin.from_.partition(", ")
    said = place or ("constraint" if path.startswith("constraint ") else "array")
    boxes.append(_Box(path, said, hue, _hover(f"Mesh axis {origin.mesh_axis} is here:", origin.from_)))
    room = max(most - len(boxes) - 1, 1)
    steps = list(origin.steps or ())
    if len(steps) <= room:
        boxes += [_step(step) for step in steps]
    else:
        first, last = steps[: room // 2], steps[len(steps) - (room - 1) // 2 :] if room > 2 else []
        hidden = steps[len(first) : len(steps) - len(last)]
        listed = [f"{step.operation} {step.source or ''}" for step in hidden]
        folded = _Box(f"… {len(hidden)} operations", "", palette.UNKNOWN, _hover(*listed))
        boxes += [*map(_step, first), folded, *map(_step, last)]
    boxes.append(_Box(target, source or "", hue, _hover(target, source or "")))
    return boxes


def _step(step: PropagationStep) -> _Box:
    arrow = {"forward": "→", "backward": "←", "across": "↔"}[step.direction]
    hover = _hover(f"{step.operation}, {step.direction}", step.source or "", step.op_name or "")
    return _Box(f"{arrow} {step.operation}", step.source or "", palette.UNKNOWN, hover)


def _hover(*lines: str) -> str:
    return "<br>".join(labels.escape(labels.middle_cut(line, 80)) for line in lines if line)


def _outline(x: float, y: float, width: float, color: str) -> dict[str, Any]:
    across, down = width / 2, _BOX_HEIGHT_PX / 2
    return frame.rectangle(x - across, x + across, y - down, y + down, color=color, width=2)


def _text(box: _Box, x: float, y: float, width: float) -> dict[str, Any]:
    fits = labels.fitting(width - 10, _FONT_PX)
    lines = [labels.middle_cut(box.title, fits), labels.middle_cut(box.subtitle, fits)]
    text = "<br>".join(labels.escape(line) for line in lines if line)
    place = {"xanchor": "center", "yanchor": "middle", "align": "center"}
    return frame.annotation(text, x, y, **place, font={"size": _FONT_PX})


def _arrow(start: tuple[float, float], end: tuple[float, float], width: float) -> dict[str, Any]:
    """Return an arrow between two boxes next to each other or below each other."""
    beside = start[1] == end[1]
    across, down = (width / 2, 0) if beside else (0, _BOX_HEIGHT_PX / 2)
    return {
        "text": "",
        "showarrow": True,
        "arrowhead": 2,
        "arrowwidth": 1.5,
        "arrowcolor": frame.MIDDLE_GREY,
        **{"ax": start[0] + across, "ay": start[1] - down},
        **{"x": end[0] - across, "y": end[1] + down},
        **{"xref": "x", "yref": "y", "axref": "x", "ayref": "y"},
    }
