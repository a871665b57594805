"""The chips of a slice at their places, each colored by its index along one axis of the mesh.

Two axes of a torus are the columns and rows of one grid of chips; the third has a grid for each of its
layers. A chip of several devices is parted. GPUs have no such places: their nodes are boxes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Mesh
from inspector.figures import frame, labels, lattice, palette
from inspector.figures.mesh_layout import axes_text
from inspector.machines.targets import GPUS_PER_NODE
from inspector.machines.torus_places import TorusPlaces, places_of

_CHIP_PX = (3.0, 72.0)  # the smallest and the largest chip
_MOST_HEIGHT_PX = 640
_GAP_PX, _NARROW_GAP_PX = 22, 6  # between panels, with titles and without
_TITLE_PX = 24  # above each panel
_MOST_TITLED = 64  # more panels than this have no title each
_PARTED_PX = 5  # chips at least so large are parted by a line of the page's ground
_OUTLINED_PX = 10  # chips at least so large have their hosts outlined and wrap-around marked
_MARK_PX = 7  # a mark of a wrap-around link
_LEGEND_PX = 26  # a row of colors above the panels
_NEARLY = 0.75
_MOST_HOVER_BYTES = 140_000  # what may be said of the chips under the pointer, all together


@dataclass(frozen=True)
class _Panels:
    """Grids of devices: `cells` (panels, rows, columns) has each one's place in mesh order, −1 for none.

    split: columns that are one chip. facts: what else the pointer tells, (words, number of each device).
    wraps: whether columns and rows wrap around. coordinates: whether columns and rows are places.
    """

    titles: tuple[str, ...]
    cells: np.ndarray
    split: int
    facts: tuple[tuple[str, np.ndarray], ...]
    hosts: np.ndarray | None
    wraps: tuple[bool, bool]
    heading: str
    notes: tuple[str, ...]
    below: tuple[str, ...]
    coordinates: bool = False


@dataclass(frozen=True)
class _Place:
    """Where the panels lie in pixels: a chip's edge, panels side by side, and the gaps between them."""

    chip: float
    across: int
    gap: float
    title: float
    pad: float


def torus_map(
    mesh: Mesh, *, highlight_axis: str | None = None, width_px: int = 480
) -> go.Figure | None:
    """The slice with the mesh on it; None where the mesh does not say where its devices stand.

    Args:
      highlight_axis: the mesh axis whose indices are the colors; by default the first that is split.

    Raises:
      InvalidInput: the mesh has no such axis.
    """
    if highlight_axis is not None and highlight_axis not in mesh.axis_names:
        raise InvalidInput(
            f"highlight_axis is {shown(highlight_axis)}, but must be one of "
            f"{', '.join(map(shown, mesh.axis_names))}"
        )
    places = places_of(mesh)
    if places is not None:
        panels = _torus_panels(mesh, places)
    elif (mesh.device_kind or "").startswith("NVIDIA"):
        panels = _node_panels(mesh)
    else:
        return None
    axis = _colored_axis(mesh, highlight_axis)
    index = _indices(mesh)[axis]
    width = width_px - 44  # tick labels and margins
    size = mesh.shape[axis]
    few = 1 < size <= len(palette.TOL_LIGHT)
    place = _place(panels, width)
    columns, rows = _edges(panels, place, _LEGEND_PX if few else 0)
    plot_width = max(columns[-1][1] + place.pad, width)
    plot_height = rows[-1][1] + place.pad
    text = _text(mesh, panels, place, axis, index)
    traces: list[go.Heatmap | go.Scatter] = [
        _heatmap(mesh, panels, place, columns, rows, index, axis, text)
    ]
    notes = list(panels.notes)
    if place.chip >= _OUTLINED_PX:
        outline = _host_outlines(panels, place, columns, rows)
        if outline is not None:
            traces.append(outline)
            notes[0] += "; hosts outlined"
        if any(panels.wraps):
            traces.append(_wrap_marks(panels, place, columns, rows))
    if place.title:
        traces.append(_titles(panels, place, columns, rows))
    colored = f"colored by the index along {mesh.axes[axis].name} ({size})"
    notes.append(colored + ("" if few or size == 1 else ", light to dark"))
    if few:
        traces.append(_legend(size, _LEGEND_PX / 2 - 2))
    return frame.map_figure(
        traces,
        width_px,
        plot_width,
        plot_height,
        heading=f"{panels.heading}, mesh {axes_text(mesh)}",
        notes=notes,
        below=panels.below,
        row_ticks=_ticks(panels, place, rows, 1),
        column_ticks=_ticks(panels, place, columns, 2),
        to_scale=False,
    )


def _torus_panels(mesh: Mesh, places: TorusPlaces) -> _Panels:
    split = places.devices_per_chip
    rank = len(places.topology)
    across, down, layers = (*places.topology, 1, 1)[:3]
    x, y, z = (
        places.coordinates[:, axis] if axis < rank else np.zeros(mesh.size, np.int64)
        for axis in range(3)
    )
    cells = np.full((layers, down, across * split), -1)
    cells[z, y, x * split + places.cores] = np.arange(mesh.size)
    facts = [
        (f"{name} ", places.coordinates[:, axis]) for axis, name in enumerate(places.axis_names)
    ]
    if split > 1:
        facts.append(("core ", places.cores))
    hosts = None
    if mesh.processes is not None and len(set(mesh.processes)) > 1:
        hosts = np.array(mesh.processes)
        facts.append(("host ", hosts))
    around = [name for name, wraps in zip(places.axis_names, places.wraps, strict=True) if wraps]
    not_around = [name for name in places.axis_names if name not in around]
    chips = counted(math.prod(places.topology), "chip")
    if split > 1:
        chips += f" of {split} devices"
    directions = ["x →", "y ↓"][:rank]
    if rank == 3:
        directions.append("a grid for each layer of z")
    if layers > _MOST_TITLED:
        directions.append(f"z from 0 to {layers - 1} in reading order")
    return _Panels(
        titles=tuple(f"z {layer}" for layer in range(layers)) if rank == 3 else ("",),
        cells=cells,
        split=split,
        facts=tuple(facts),
        hosts=hosts,
        wraps=((*places.wraps, False)[0], (*places.wraps, False)[1]),
        heading=f"Torus {'×'.join(map(str, places.topology))}",
        # Above, for below it would stand in the middle of a figure that is wider than the chips.
        notes=(f"{chips}; {_wrap_words(around, not_around)}", ", ".join(directions)),
        below=(),
        coordinates=True,
    )


def _wrap_words(around: Sequence[str], not_around: Sequence[str]) -> str:
    """`x and y wrap around, z does not`."""

    def said(names: Sequence[str], one: str, several: str) -> str:
        listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        return f"{listed} {one if len(names) == 1 else several}"

    if not not_around:
        return said(around, "wraps around", "wrap around")
    if not around:
        return f"no wrap-around along {' or '.join(not_around)}"
    return (
        f"{said(around, 'wraps around', 'wrap around')}, {said(not_around, 'does not', 'do not')}"
    )


def _node_panels(mesh: Mesh) -> _Panels:
    """A box for each node: the GPUs of one process, or where these are not known every eight by id."""
    node = np.array(
        mesh.processes
        if mesh.processes is not None
        else [device // GPUS_PER_NODE for device in mesh.devices]
    )
    names, number = np.unique(node, return_inverse=True)
    by_node = [np.flatnonzero(number == one) for one in range(len(names))]
    most = max(map(len, by_node))
    across = most if most <= GPUS_PER_NODE // 2 else -(-most // 2)
    down = -(-most // across)
    cells = np.full((len(names), down * across), -1)
    for row, own in enumerate(by_node):
        cells[row, : len(own)] = sorted(own.tolist(), key=lambda one: mesh.devices[one])
    return _Panels(
        titles=tuple(f"node {name}" for name in names),
        cells=cells.reshape(len(names), down, across),
        split=1,
        facts=(("node ", node),),
        hosts=None,
        wraps=(False, False),
        heading=counted(mesh.size, "GPU"),
        notes=(f"{counted(len(names), 'node')}, each GPU linked to all others of its node",),
        below=(f"nodes {names[0]} to {names[-1]} in reading order",) if len(names) > 1 else (),
    )


def _colored_axis(mesh: Mesh, name: str | None) -> int:
    if name is not None:
        return mesh.axis_names.index(name)
    return next((number for number, axis in enumerate(mesh.axes) if axis.size > 1), 0)


def _indices(mesh: Mesh) -> list[np.ndarray]:
    """For each mesh axis the index of every device along it, in mesh order."""
    # Not by an array of as many dimensions as the mesh has: NumPy knows at most 64.
    positions, stride, found = np.arange(mesh.size), mesh.size, []
    for axis in mesh.axes:
        stride //= axis.size
        found.append(positions // stride % axis.size)
    return found


def _place(panels: _Panels, width_px: float) -> _Place:
    """As large chips as the width and a readable height allow."""
    count, down, across = panels.cells.shape
    across //= panels.split
    titled = panels.titles[0] != "" and count <= _MOST_TITLED
    gap, title = (_GAP_PX, _TITLE_PX) if titled else (_NARROW_GAP_PX, 0)
    pad = _MARK_PX + 2 if any(panels.wraps) else 1
    fitting, low = [], []
    for side_by_side in range(1, count + 1):
        chip = (width_px - 2 * pad - gap * (side_by_side - 1)) / (side_by_side * across)
        chip = min(chip, _CHIP_PX[1])
        lines = -(-count // side_by_side)
        height = lines * (chip * down + gap + title)
        if height <= _MOST_HEIGHT_PX and chip >= _CHIP_PX[0]:
            fitting.append((chip, -(lines * side_by_side - count), side_by_side))
        if chip >= _CHIP_PX[0] or side_by_side == 1:
            low.append((-height, max(chip, 1.0), side_by_side))
    if fitting:
        # Rather whole rows of panels than somewhat larger chips.
        largest = max(chip for chip, _, _ in fitting)
        best = [one for one in fitting if one[0] >= _NEARLY * largest]
        _, chip, side_by_side = max((missing, chip, number) for chip, missing, number in best)
    else:
        _, chip, side_by_side = max(low)
    return _Place(chip, side_by_side, gap, title, pad)


def _edges(
    panels: _Panels, place: _Place, top_px: float
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(start, stop) in pixels of every column and every row of all panels, `top_px` from above on."""
    count, down, across = panels.cells.shape
    cell = place.chip / panels.split
    panel_width, panel_height = cell * across, place.chip * down
    columns = [
        (left, left + cell)
        for panel in range(min(place.across, count))
        for column in range(across)
        for left in [place.pad + panel * (panel_width + place.gap) + column * cell]
    ]
    rows = [
        (top, top + place.chip)
        for line in range(-(-count // place.across))
        for row in range(down)
        for top in [
            top_px
            + place.pad
            + place.title
            + line * (panel_height + place.gap + place.title)
            + row * place.chip
        ]
    ]
    return columns, rows


def _text(mesh: Mesh, panels: _Panels, place: _Place, axis: int, index: np.ndarray) -> lattice.Text:
    """What stands in each device's cell, by its place in mesh order."""
    name = mesh.axes[axis].name
    forms: list[Callable[[int], str]] = [
        lambda one: f"device {mesh.devices[one]}\n{name} {index[one]}",
        lambda one: f"{mesh.devices[one]}\n{name} {index[one]}",
        lambda one: str(mesh.devices[one]),
    ]
    size = (place.chip / panels.split - 2, place.chip - 2)
    return lattice.fit_text(forms, range(mesh.size), [size] * mesh.size)


def _heatmap(
    mesh: Mesh,
    panels: _Panels,
    place: _Place,
    columns: Sequence[tuple[float, float]],
    rows: Sequence[tuple[float, float]],
    index: np.ndarray,
    axis: int,
    text: lattice.Text,
) -> go.Heatmap:
    """All panels in one heatmap: a browser draws it at once."""
    x, column_at = _borders(columns)
    y, row_at = _borders(rows)
    at = np.full((len(y) - 1, len(x) - 1), -1)
    _, down, across = panels.cells.shape
    for number, cells in enumerate(panels.cells):
        line, column = divmod(number, place.across)
        at[
            np.ix_(
                row_at[line * down : (line + 1) * down],
                column_at[column * across : (column + 1) * across],
            )
        ] = cells
    scale, low, high = palette.colorscale_of_blocks(mesh.shape[axis])
    template, told = _hover(mesh, panels, axis, at.size)
    cell = place.chip / panels.split
    parted = 1.5 if cell >= 2 * _PARTED_PX else 1 if cell >= _PARTED_PX else 0
    # All colors of indices are light enough for black text.
    return go.Heatmap(
        x=x,
        y=y,
        z=np.where(at >= 0, index[at], np.nan).astype(np.float32),
        zmin=low,
        zmax=high,
        colorscale=scale,
        showscale=False,
        xgap=parted,
        ygap=parted,
        text=[[labels.lines(text.texts[one]) if one >= 0 else "" for one in row] for row in at]
        if any(text.texts)
        else None,
        texttemplate="%{text}" if any(text.texts) else None,
        textfont={"size": text.size_px, "color": palette.BLACK},
        customdata=np.where(at[:, :, None] >= 0, told[at], 0).astype(told.dtype),
        hovertemplate=template,
        hoverongaps=False,
    )


def _hover(mesh: Mesh, panels: _Panels, axis: int, cells: int) -> tuple[str, np.ndarray]:
    """What the pointer tells, as a template, and its numbers, (devices, facts).

    Texts of thousands of chips would be a large figure; where there are many `cells`, only the first
    facts are told.
    """
    indices = _indices(mesh)
    split = [number for number, one in enumerate(mesh.axes) if one.size > 1 and number != axis]
    facts = [("device ", np.array(mesh.devices, dtype=np.float64))]
    facts += [
        (f"{_as_template(labels.cut(mesh.axes[number].name, 40))} ", indices[number])
        for number in [axis, *split]
    ]
    facts += panels.facts
    largest = max(float(np.abs(numbers).max()) for _, numbers in facts)
    dtype = np.int16 if largest < 2**15 else np.int32 if largest < 2**31 else np.float64
    most = max(_MOST_HOVER_BYTES // (cells * np.dtype(dtype).itemsize), 1)
    facts = facts[:most]
    told = np.stack([numbers for _, numbers in facts], axis=1).astype(dtype)
    words = [f"{word}%{{customdata[{number}]}}" for number, (word, _) in enumerate(facts)]
    own = 1 + 1 + len(split)  # the device and its mesh indices; then where it stands
    lines = [f"<b>{words[0]}</b>", ", ".join(words[1:own]), ", ".join(words[own:])]
    return "<br>".join(line for line in lines if line) + "<extra></extra>", told


def _as_template(text: str) -> str:
    """Text that Plotly's templates show literally."""
    return labels.escape(text).replace("%", "&#37;").replace("{", "&#123;")


def _borders(edges: Sequence[tuple[float, float]]) -> tuple[list[float], np.ndarray]:
    """All borders in order, and where among the pieces between them each of the edges is."""
    borders, at = [edges[0][0]], []
    for start, stop in edges:
        if start > borders[-1] + 1e-6:
            borders.append(start)
        at.append(len(borders) - 1)
        borders.append(stop)
    return [round(border, 2) for border in borders], np.array(at)


def _host_outlines(
    panels: _Panels,
    place: _Place,
    columns: Sequence[tuple[float, float]],
    rows: Sequence[tuple[float, float]],
) -> go.Scatter | None:
    """A box around the chips of each host in each panel; None where these are no boxes."""
    if panels.hosts is None:
        return None
    _, down, across = panels.cells.shape
    x: list[float | None] = []
    y: list[float | None] = []
    for number, cells in enumerate(panels.cells):
        line, column = divmod(number, place.across)
        hosts = np.where(cells >= 0, panels.hosts[cells], -1)
        for host in np.unique(hosts[hosts >= 0]):
            at_rows, at_columns = np.nonzero(hosts == host)
            top, bottom = int(at_rows.min()), int(at_rows.max())
            first, last = int(at_columns.min()), int(at_columns.max())
            if (bottom - top + 1) * (last - first + 1) != len(at_rows):
                return None
            left, right = columns[column * across + first][0], columns[column * across + last][1]
            upper, lower = rows[line * down + top][0], rows[line * down + bottom][1]
            x += [left, right, right, left, left, None]
            y += [upper, upper, lower, lower, upper, None]
    return _lines(x, y, 2.0, "host")


def _wrap_marks(
    panels: _Panels,
    place: _Place,
    columns: Sequence[tuple[float, float]],
    rows: Sequence[tuple[float, float]],
) -> go.Scatter:
    """A short line out of each end of an axis that wraps around."""
    count, down, across = panels.cells.shape
    x: list[float | None] = []
    y: list[float | None] = []
    for number in range(count):
        line, column = divmod(number, place.across)
        own_columns = columns[column * across : (column + 1) * across]
        own_rows = rows[line * down : (line + 1) * down]
        left, right = own_columns[0][0], own_columns[-1][1]
        top, bottom = own_rows[0][0], own_rows[-1][1]
        for start, stop in own_rows if panels.wraps[0] else ():
            middle = (start + stop) / 2
            x += [left - _MARK_PX, left - 1, None, right + 1, right + _MARK_PX, None]
            y += [middle, middle, None, middle, middle, None]
        for chip in range(0, across, panels.split) if panels.wraps[1] else ():
            middle = (own_columns[chip][0] + own_columns[chip + panels.split - 1][1]) / 2
            x += [middle, middle, None, middle, middle, None]
            y += [top - _MARK_PX, top - 1, None, bottom + 1, bottom + _MARK_PX, None]
    return _lines(x, y, 2.0, "wrap-around")


def _lines(
    x: Sequence[float | None], y: Sequence[float | None], width: float, name: str
) -> go.Scatter:
    return go.Scatter(
        x=[None if one is None else round(one, 1) for one in x],
        y=[None if one is None else round(one, 1) for one in y],
        mode="lines",
        line={"color": frame.MIDDLE_GREY, "width": width},
        hoverinfo="skip",
        showlegend=False,
        name=name,
    )


def _titles(
    panels: _Panels,
    place: _Place,
    columns: Sequence[tuple[float, float]],
    rows: Sequence[tuple[float, float]],
) -> go.Scatter:
    count, down, across = panels.cells.shape
    at = [divmod(number, place.across) for number in range(count)]
    return go.Scatter(
        x=[round(columns[column * across][0], 1) for _, column in at],
        y=[round(rows[line * down][0] - place.pad - 1, 1) for line, _ in at],
        mode="text",
        text=list(panels.titles),
        textposition="top right",
        textfont={"size": frame.NOTE_PX},
        cliponaxis=False,
        hoverinfo="skip",
    )


def _legend(size: int, middle_px: float) -> go.Scatter:
    """The colors of few indices, in a row above the panels."""
    return go.Scatter(
        x=[10 + 40 * number for number in range(size)],
        y=[round(middle_px, 1)] * size,
        mode="markers+text",
        marker={
            "symbol": "square",
            "size": 12,
            "color": list(palette.colors_of_blocks(size)),
            "line": {"width": 0},
        },
        text=[str(number) for number in range(size)],
        textposition="middle right",
        textfont={"size": frame.NOTE_PX},
        cliponaxis=False,
        hoverinfo="skip",
        name="colors",
    )


def _ticks(
    panels: _Panels, place: _Place, edges: Sequence[tuple[float, float]], axis: int
) -> tuple[list[float], list[str]]:
    """The coordinates of chips along the sides of a torus, as many as have room; nodes have none."""
    split = panels.split if axis == 2 else 1
    length = panels.cells.shape[axis]
    if not panels.coordinates or (place.title == 0 and len(panels.cells) > 1):
        return [], []
    room = 14.0 if axis == 1 else labels.width_px(str(length), frame.TICK_PX) + 4
    every = 1
    while place.chip * every < room:
        every *= 2
    places, texts = [], []
    for first in range(0, len(edges), split):
        coordinate = first % length // split
        if coordinate % every == 0:
            places.append(round((edges[first][0] + edges[first + split - 1][1]) / 2, 2))
            texts.append(str(coordinate))
    return places, texts
