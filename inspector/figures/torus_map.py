"""The chips of a slice at their places, each colored by its index along one axis of the mesh."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import mesh_text
from inspector.core.snapshot import Mesh
from inspector.figures import cells, chip_panels, labels, lattice, palette, ticks
from inspector.figures.chip_panels import MARK_PX, Panels, Places
from inspector.figures.mesh_layout import device_forms, has_devices

_SEPARATED_PX = 5  # chips at least this large are separated by a line
_OUTLINED_PX = 10  # chips at least this large have outlines of hosts and marks of wrap-around links
_MOST_LEGEND = 8  # indices that are listed above the map
_LEGEND_PX = 26  # a row of colors above the panels
_MOST_HOVER_BYTES = 140_000  # of the hover facts of all chips together


def torus_map(mesh: Mesh, *, highlight_axis: str | None = None, width_px: int = 480) -> go.Figure | None:
    """Return the devices of the mesh at their places; None if the mesh does not know them.

    The colors are the indices along `highlight_axis`, by default the first mesh axis larger than 1. If the
    mesh has no such axis, raise InvalidInput.
    """
    if highlight_axis is not None and highlight_axis not in mesh.axis_names:
        raise InvalidInput(
            f"highlight_axis is {shown(highlight_axis)}, but must be one of "
            f"{', '.join(map(shown, mesh.axis_names))}"
        )
    panels = chip_panels.panels_of(mesh) if has_devices(mesh) else None
    if panels is None:
        return None
    axis = next((number for number, mesh_axis in enumerate(mesh.axes) if mesh_axis.size > 1), 0)
    if highlight_axis is not None:
        axis = mesh.axis_names.index(highlight_axis)
    size = mesh.shape[axis]
    few = 1 < size <= _MOST_LEGEND
    width = width_px - 44  # tick labels and margins
    places = chip_panels.place(panels, width, _LEGEND_PX if few else 0)
    traces: list[go.Heatmap | go.Scatter] = [_heatmap(mesh, places, axis)]
    notes = list(panels.notes)
    if places.chip >= _OUTLINED_PX:
        outline = _host_outlines(places)
        if outline is not None:
            traces.append(outline)
            notes[0] += "; hosts outlined"
        if any(panels.wraps):
            traces.append(_wrap_marks(places))
    if places.title:
        traces.append(_titles(places))
    coloring = f"colored by the index along {mesh.axes[axis].name} ({size})"
    notes.append(coloring + ("" if few or size == 1 else ", light to dark"))
    if few:
        traces.append(_legend(mesh.axes[axis].name, size, _LEGEND_PX / 2 - 2))
    return cells.map_figure(
        traces,
        width_px,
        max(places.columns[-1][1] + places.pad, width),
        places.rows[-1][1] + places.pad,
        heading=f"{panels.heading}, mesh {mesh_text(mesh)}",
        notes=notes,
        below=panels.below,
        row_ticks=_ticks(places, places.rows, 1),
        column_ticks=_ticks(places, places.columns, 2),
    )


def _indices(mesh: Mesh) -> list[np.ndarray]:
    """Return for each mesh axis the index of every device along it, in mesh order."""
    # Not with np.unravel_index: a mesh may have more than the 64 dimensions of NumPy.
    positions, stride, indices = np.arange(mesh.size), mesh.size, []
    for axis in mesh.axes:
        stride //= axis.size
        indices.append(positions // stride % axis.size)
    return indices


def _heatmap(mesh: Mesh, places: Places, axis: int) -> go.Heatmap:
    """Return all panels in one heatmap, which a browser draws at once."""
    panels = places.panels
    index = _indices(mesh)[axis]
    at, x, y = cells.panel_places(panels.cells, places.across, places.columns, places.rows)
    template, facts = _hover(mesh, panels, axis, at.size)
    name = mesh.axes[axis].name
    forms = device_forms(mesh, lambda at: f"{name} {index[at]}")
    cell = places.chip / panels.split
    text = lattice.fit_text(forms, range(mesh.size), [(cell - 2, places.chip - 2)] * mesh.size)
    texts = np.append(np.array([labels.lines(label) for label in text.texts], dtype=object), "")
    separator = 1.5 if cell >= 2 * _SEPARATED_PX else 1 if cell >= _SEPARATED_PX else 0
    labelled = any(text.texts)
    return go.Heatmap(
        x=x,
        y=y,
        z=np.where(at >= 0, index[at], np.nan).astype(np.float32),
        **palette.coloring_of_axis(name, mesh.shape[axis]),
        showscale=False,
        xgap=separator,
        ygap=separator,
        text=texts[at].tolist() if labelled else None,
        texttemplate="%{text}" if labelled else None,
        # Black can be read on all shades.
        textfont={"size": text.size_px, "color": palette.BLACK},
        customdata=np.where(at[:, :, None] >= 0, facts[at], 0).astype(facts.dtype),
        hovertemplate=template,
        hoverongaps=False,
    )


def _hover(mesh: Mesh, panels: Panels, axis: int, cell_count: int) -> tuple[str, np.ndarray]:
    """Return the hover template and its numbers, (devices, facts).

    Numbers are smaller than texts, of which thousands would make a large figure. If there are many cells,
    only the first facts are kept.
    """
    indices = _indices(mesh)
    split = [number for number, mesh_axis in enumerate(mesh.axes) if mesh_axis.size > 1 and number != axis]
    facts = [("device ", np.array(mesh.devices, dtype=np.float64))]
    facts += [
        (f"{_as_template(labels.cut(mesh.axes[number].name, 40))} ", indices[number])
        for number in [axis, *split]
    ]
    facts += panels.facts
    largest = max(float(np.abs(numbers).max()) for _, numbers in facts)
    dtype = np.int16 if largest < 2**15 else np.int32 if largest < 2**31 else np.float64
    facts = facts[: max(_MOST_HOVER_BYTES // (cell_count * np.dtype(dtype).itemsize), 1)]
    words = [f"{word}%{{customdata[{number}]}}" for number, (word, _) in enumerate(facts)]
    first = 2 + len(split)  # the device and its mesh indices; its place follows
    lines = [f"<b>{words[0]}</b>", ", ".join(words[1:first]), ", ".join(words[first:])]
    template = "<br>".join(line for line in lines if line) + "<extra></extra>"
    return template, np.stack([numbers for _, numbers in facts], axis=1).astype(dtype)


def _as_template(text: str) -> str:
    """Escape a text so that Plotly's templates show it literally."""
    return labels.escape(text).replace("%", "&#37;").replace("{", "&#123;")


def _host_outlines(places: Places) -> go.Scatter | None:
    """Return a rectangle around the chips of each host; None if the hosts do not form rectangles."""
    hosts = places.panels.hosts
    if hosts is None:
        return None
    lines = []
    for number, devices in enumerate(places.panels.cells):
        columns, rows = places.edges(number)
        host_at = np.where(devices >= 0, hosts[devices], -1)
        for host in np.unique(host_at[host_at >= 0]):
            at_rows, at_columns = np.nonzero(host_at == host)
            top, bottom = int(at_rows.min()), int(at_rows.max())
            first, last = int(at_columns.min()), int(at_columns.max())
            if (bottom - top + 1) * (last - first + 1) != len(at_rows):
                return None
            left, right = columns[first][0], columns[last][1]
            upper, lower = rows[top][0], rows[bottom][1]
            lines.append([(left, upper), (right, upper), (right, lower), (left, lower), (left, upper)])
    return cells.strokes(lines, 2, "host")


def _wrap_marks(places: Places) -> go.Scatter:
    """Return a short line at each end of an axis with wrap-around links."""
    panels = places.panels
    lines = []
    for number in range(len(panels.cells)):
        columns, rows = places.edges(number)
        left, right, top, bottom = columns[0][0], columns[-1][1], rows[0][0], rows[-1][1]
        for start, stop in rows if panels.wraps[0] else ():
            middle = (start + stop) / 2
            lines.append([(left - MARK_PX, middle), (left - 1, middle)])
            lines.append([(right + 1, middle), (right + MARK_PX, middle)])
        for chip in range(0, len(columns), panels.split) if panels.wraps[1] else ():
            middle = (columns[chip][0] + columns[chip + panels.split - 1][1]) / 2
            lines.append([(middle, top - MARK_PX), (middle, top - 1)])
            lines.append([(middle, bottom + 1), (middle, bottom + MARK_PX)])
    return cells.strokes(lines, 2, "wrap-around")


def _titles(places: Places) -> go.Scatter:
    corners = []
    for number in range(len(places.panels.cells)):
        columns, rows = places.edges(number)
        corners.append((columns[0][0], rows[0][0] - places.pad - 1))
    return cells.texts(corners, places.panels.titles, "top right")


def _legend(name: str, size: int, middle_px: float) -> go.Scatter:
    """Return the colors of a few indices in a row above the panels."""
    trace = cells.texts(
        [(10 + 40 * number, middle_px) for number in range(size)],
        [str(number) for number in range(size)],
        name="colors",
    )
    marker = {"symbol": "square", "size": 12, "color": list(palette.shades_of_axis(name, size))}
    return trace.update(mode="markers+text", marker=marker)


def _ticks(places: Places, edges: cells.Edges, axis: int) -> ticks.Ticks:
    """Return the coordinates of chips along one side of a torus; none for nodes."""
    panels = places.panels
    split = panels.split if axis == 2 else 1
    chips = panels.cells.shape[axis] // split
    if not panels.coordinates or (places.title == 0 and len(panels.cells) > 1):
        return ticks.NO_TICKS
    starts, stops = edges[::split], edges[split - 1 :: split]
    middles = [(first[0] + last[1]) / 2 for first, last in zip(starts, stops, strict=True)]
    texts = [str(chip % chips) for chip in range(len(middles))]
    return ticks.every_nth(middles, texts, upright=axis == 1, period=chips)
