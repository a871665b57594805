"""The chips of a slice, or the GPUs of nodes, as panels: grids of devices with their places in pixels.

The x and y axes of a torus are the columns and rows of a panel; each slice and each layer of z has its own
panel. A chip of several devices is divided. GPUs have no coordinates: a node is one panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inspector.core.formatting import and_text, counted
from inspector.core.snapshot import Mesh
from inspector.core.tpu_slices import crossing_axes
from inspector.figures.cells import Edges
from inspector.figures.mesh_layout import known_processes, processes_of
from inspector.machines.targets import GPUS_PER_NODE
from inspector.machines.torus_places import TorusPlaces, places_of

_CHIP_PX = (3.0, 72.0)  # the minimum and maximum size of a chip
_MOST_HEIGHT_PX = 640
_GAP_PX, _NARROW_GAP_PX = 22, 6  # between panels with and without titles
_TITLE_PX = 24  # above each panel
_MOST_TITLED = 64  # more panels than this have no titles
_NEARLY = 0.75
MARK_PX = 7  # the mark of a wrap-around link


@dataclass(frozen=True)
class Panels:
    """Grids of devices.

    cells: (panels, rows, columns) each device's place in mesh order, −1 for an empty cell.
    split: the columns that form one chip.
    facts: for the hover text, (label, number of each device).
    hosts: (devices,) the host of each device, if hosts can be outlined.
    wraps: whether columns and rows have wrap-around links.
    coordinates: whether column and row numbers are coordinates of chips.
    """

    titles: tuple[str, ...]
    cells: np.ndarray
    split: int
    facts: tuple[tuple[str, np.ndarray], ...]
    hosts: np.ndarray | None
    wraps: tuple[bool, bool]
    heading: str
    notes: tuple[str, ...]
    below: tuple[str, ...] = ()
    coordinates: bool = False


@dataclass(frozen=True)
class Places:
    """The panels in pixels: the size of a chip, the panels per line, and the gaps.

    columns, rows: (start, stop) of every column and row of all panels.
    """

    panels: Panels
    chip: float
    across: int
    gap: float
    title: float
    pad: float
    columns: Edges
    rows: Edges

    def edges(self, number: int) -> tuple[Edges, Edges]:
        """Return the columns and rows of one panel."""
        line, column = divmod(number, self.across)
        _, down, across = self.panels.cells.shape
        return (
            self.columns[column * across : (column + 1) * across],
            self.rows[line * down : (line + 1) * down],
        )


def panels_of(mesh: Mesh) -> Panels | None:
    """Return the panels of a mesh on TPU chips or NVIDIA GPUs; None if its devices have no places."""
    places = places_of(mesh)
    if places is not None:
        return _torus_panels(mesh, places)
    if (mesh.device_kind or "").startswith("NVIDIA"):
        return _node_panels(mesh)
    return None


def place(panels: Panels, width_px: float, top_px: float) -> Places:
    """Place the panels below `top_px`, with chips as large as width and a readable height allow."""
    count, down, across = panels.cells.shape
    across //= panels.split
    titled = panels.titles[0] != "" and count <= _MOST_TITLED
    gap, title = (_GAP_PX, _TITLE_PX) if titled else (_NARROW_GAP_PX, 0)
    pad = MARK_PX + 2 if any(panels.wraps) else 1
    fitting, other = [], []
    for side_by_side in range(1, count + 1):
        chip = (width_px - 2 * pad - gap * (side_by_side - 1)) / (side_by_side * across)
        chip = min(chip, _CHIP_PX[1])
        lines = -(-count // side_by_side)
        height = lines * (chip * down + gap + title)
        if height <= _MOST_HEIGHT_PX and chip >= _CHIP_PX[0]:
            fitting.append((chip, count - lines * side_by_side, side_by_side))
        if chip >= _CHIP_PX[0] or side_by_side == 1:
            other.append((-height, max(chip, 1.0), side_by_side))
    if fitting:
        # Complete lines of panels look better than slightly larger chips.
        largest = max(chip for chip, _, _ in fitting)
        nearly = [candidate for candidate in fitting if candidate[0] >= _NEARLY * largest]
        _, chip, side_by_side = max((missing, chip, number) for chip, missing, number in nearly)
    else:
        _, chip, side_by_side = max(other)
    cell = chip / panels.split
    lefts = [
        pad + number * (chip * across + gap) + column * cell
        for number in range(min(side_by_side, count))
        for column in range(across * panels.split)
    ]
    tops = [
        top_px + pad + title + line * (chip * down + gap + title) + row * chip
        for line in range(-(-count // side_by_side))
        for row in range(down)
    ]
    return Places(
        panels,
        chip,
        side_by_side,
        gap,
        title,
        pad,
        [(left, left + cell) for left in lefts],
        [(top, top + chip) for top in tops],
    )


def _torus_panels(mesh: Mesh, places: TorusPlaces) -> Panels:
    split = places.devices_per_chip
    rank = len(places.topology)
    across, down, layers = (*places.topology, 1, 1)[:3]
    x, y, z = (
        places.coordinates[:, axis] if axis < rank else np.zeros(mesh.size, np.int64) for axis in range(3)
    )
    slices = places.slice_count
    cells = np.full((slices * layers, down, across * split), -1)
    cells[places.slices * layers + z, y, x * split + places.cores] = np.arange(mesh.size)
    facts = [("slice ", places.slices)] if slices > 1 else []
    facts += [(f"{name} ", places.coordinates[:, axis]) for axis, name in enumerate(places.axis_names)]
    if split > 1:
        facts.append(("core ", places.cores))
    hosts = None
    if (processes := processes_of(mesh)) is not None:
        hosts = np.array(processes)
        facts.append(("host ", hosts))
    chips = counted(math.prod(places.topology), "chip")
    if split > 1:
        chips += f" of {split} devices"
    directions = ["x →", "y ↓"][:rank]
    if rank == 3:
        directions.append("one grid per layer of z")
    if slices > 1:
        chips += " in each slice"
        directions.append(f"{slices} slices{'' if rank == 3 else ', one grid per slice'}")
    if slices * layers > _MOST_TITLED:
        order = f"slices from 0 to {slices - 1}" if slices > 1 else f"z from 0 to {layers - 1}"
        directions.append(f"{order} in reading order")
    crossing = crossing_axes(mesh)
    across_slices = (
        (f"{and_text(crossing)} {'cross' if len(crossing) > 1 else 'crosses'} slices (DCN)",)
        if crossing
        else ()
    )
    return Panels(
        titles=tuple(
            ", ".join(
                ([f"slice {slice_number}"] if slices > 1 else []) + ([f"z {layer}"] if rank == 3 else [])
            )
            for slice_number in range(slices)
            for layer in range(layers)
        ),
        cells=cells,
        split=split,
        facts=tuple(facts),
        hosts=hosts,
        wraps=((*places.wraps, False)[0], (*places.wraps, False)[1]),
        heading=(f"{slices} slices, each a torus " if slices > 1 else "Torus ")
        + "×".join(map(str, places.topology)),
        notes=(f"{chips}; {_wrap_text(places)}", ", ".join(directions), *across_slices),
        coordinates=True,
    )


def _wrap_text(places: TorusPlaces) -> str:
    """Return `x and y wrap around, z does not`."""
    axes = list(zip(places.axis_names, places.wraps, strict=True))
    around, open_ = ([name for name, wraps in axes if wraps == kind] for kind in (True, False))
    if not around:
        return f"no wrap-around along {' or '.join(open_)}"
    text = f"{and_text(around)} {'wraps' if len(around) == 1 else 'wrap'} around"
    if open_:
        text += f", {and_text(open_)} {'does' if len(open_) == 1 else 'do'} not"
    return text


def _node_panels(mesh: Mesh) -> Panels:
    """Return a panel per node: the GPUs of one process, or eight by id if processes are unknown."""
    processes: Sequence[int] = known_processes(mesh) or [device // GPUS_PER_NODE for device in mesh.devices]
    node = np.array(processes)
    names, number = np.unique(node, return_inverse=True)
    by_node = [np.flatnonzero(number == node) for node in range(len(names))]
    most = max(map(len, by_node))
    across = most if most <= GPUS_PER_NODE // 2 else -(-most // 2)
    down = -(-most // across)
    cells = np.full((len(names), down * across), -1)
    for row, places in enumerate(by_node):
        cells[row, : len(places)] = sorted(places.tolist(), key=lambda place: mesh.devices[place])
    return Panels(
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
