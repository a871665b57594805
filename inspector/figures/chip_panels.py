"""The chips of a slice, or the GPUs of nodes, as panels: grids of devices with their places in pixels.

The x and y axes of a torus are the columns and rows of a panel; each slice and each layer of z has its own
panel. A chip of several devices is divided. GPUs have no coordinates: a node is one panel.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inspector.figures.mesh_layout import known_processes
from inspector.machines.targets import GPUS_PER_NODE
from inspector.machines.torus_groups import TorusPlaces, places_of
from inspector.records.snapshot import Mesh
from inspector.text.formatting import and_text, counted


@dataclass(frozen=True)
class Panels:
    """Grids of devices.

    cells: (panels, rows, columns) each device's place in mesh order, −1 for an empty cell.
    """

    cells: np.ndarray
    heading: str
    notes: tuple[str, ...]


def panels_of(mesh: Mesh) -> Panels | None:
    """Return the panels of a mesh on TPU chips or NVIDIA GPUs; None if its devices have no places."""
    places = places_of(mesh)
    if places is not None:
        return _torus_panels(mesh, places)
    if (mesh.device_kind or "").startswith("NVIDIA"):
        return _node_panels(mesh)
    return None


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
    chips = counted(math.prod(places.topology), "chip")
    if split > 1:
        chips += f" of {split} devices"
    if slices > 1:
        chips += " in each slice"
    directions = ["x →", "y ↓", "one grid per layer of z"][:rank]
    heading = f"{slices} slices, each a torus " if slices > 1 else "Torus "
    return Panels(
        cells,
        heading + "×".join(map(str, places.topology)),
        (f"{chips}; {_wrap_text(places)}; {', '.join(directions)}",),
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
        cells.reshape(len(names), down, across),
        counted(mesh.size, "GPU"),
        (f"{counted(len(names), 'node')}, each GPU linked to all others of its node",),
    )
