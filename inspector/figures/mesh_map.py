"""The mesh, its devices in mesh order, colored by what each device holds.

In the map of an array, the colors are those of the block map: the same color means the same data.
"""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from inspector.figures import block_map, frame, mesh_layout, palette
from inspector.figures.block_grid import PlacedArray, placed
from inspector.figures.mesh_layout import mesh_grid, processes_of, processes_text
from inspector.records.snapshot import Array, Mesh
from inspector.sharding.sharding_text import mesh_text
from inspector.text import formatting

# By share: almost nothing, less than half, half or more, everything. Black text can be read on each.
_COLORS = (palette.REPLICATED, *palette.AMOUNTS[1:4])
_CHOSEN = palette.CHOSEN


def mesh_map(
    array: Array, mesh: Mesh, *, highlight: int | None = None, width_px: int = 480
) -> go.Figure | None:
    """Return the mesh colored by the blocks of `array`; None if `why_no_map` has a reason.

    Selecting gives device ids. The block `highlight` is emphasized.
    """
    on_mesh = placed(array, mesh)
    if on_mesh is None or on_mesh.why_no_map:
        return None
    placement = on_mesh.placement
    grid = mesh_grid(mesh, [placement.block])
    return mesh_layout.draw(
        mesh,
        grid,
        placement.block,
        palette.colors_of_blocks(placement.block, mesh),
        _forms(on_mesh, grid),
        lambda positions: block_map.hover_of_devices(on_mesh, positions, grid.folded),
        heading=f"Mesh {mesh_text(mesh)}",
        notes=_notes(array, mesh, placement.blocks),
        highlight=highlight,
        borders=True,
        width_px=width_px,
    )


def mesh_alone(mesh: Mesh, *, width_px: int = 480) -> go.Figure:
    """Return the devices of a mesh at their coordinates, without an array. Selecting gives device ids."""
    grid = mesh_layout.mesh_grid(mesh)

    def coordinates(at: int) -> str:
        return mesh_layout.coordinates_text(mesh, at)

    return mesh_layout.draw(
        mesh,
        grid,
        np.zeros(mesh.size, int),
        (palette.REPLICATED,),
        mesh_layout.device_forms(mesh, coordinates),
        lambda positions: [frame.hover([f"device {mesh.devices[at]}", coordinates(at)]) for at in positions],
        heading=f"Mesh {mesh_text(mesh)}",
        notes=[formatting.counted(mesh.size, "device")],
        width_px=width_px,
    )


def _notes(array: Array, mesh: Mesh, blocks: int) -> list[str]:
    order = "" if mesh.size == 1 else " in mesh order"
    notes = [f"{formatting.counted(mesh.size, 'device')}{order}"]
    if processes_of(mesh):
        notes.append(processes_text(mesh))
    if blocks == 1:
        held = "it holds" if mesh.size == 1 else "all hold"
        return [*notes, f"{held} the whole of {array.path}"]
    return [*notes, f"colored by the block held: {blocks} blocks, shades of the axes that cut them"]


def _forms(on_mesh: PlacedArray, grid: mesh_layout.MeshGrid) -> list[Callable[[int], str]]:
    """Return texts of a device's cell by its position in mesh order, the most informative first."""
    block = on_mesh.placement.block
    per_cell = mesh_layout.devices_per_cell(on_mesh.mesh, grid.folded)
    if per_cell > 1:
        return [
            lambda at: f"block {block[at]}\n{per_cell:,} devices",
            lambda at: f"block {block[at]}",
            lambda at: str(block[at]),
        ]
    forms = mesh_layout.device_forms(on_mesh.mesh, lambda at: f"block {block[at]}")
    owners = processes_of(on_mesh.mesh)
    if owners is not None:
        with_device = forms[0]
        forms.insert(0, lambda at: f"{with_device(at)}\nprocess {owners[at]}")
    return forms


def copies_map(
    mesh: Mesh, copies: np.ndarray, chosen: Sequence[int], whole: int, *, width_px: int = 480
) -> go.Figure | None:
    """Return the mesh, colored by the share of the data that each device holds.

    Return None if the chosen devices hold nothing, or if the mesh has no devices or too many to draw. A
    selected cell gives its device id.

    Args:
      copies: (devices,) bytes in mesh order, from `device_holdings.copies_of`.
      whole: bytes of the distinct data that the chosen devices hold together.
    """
    if whole <= 0 or not mesh_layout.has_devices(mesh):
        return None
    mine = np.isin(np.array(mesh.devices), np.array(list(chosen)))
    # A share that rounds to 0% is grey: a step counter on every device is not worth showing.
    step = np.select([copies * 200 < whole, copies >= whole, copies * 2 >= whole], [0, 3, 2], 1)
    # The chosen devices have everything; on a mesh too large to draw they do not prevent folding.
    grid = mesh_layout.mesh_grid(mesh, [np.where(mine, len(_COLORS) - 1, step)], first=int(np.argmax(mine)))
    if mesh_layout.cell_count(mesh, grid.folded) > mesh_layout.MOST_CELLS:
        return None

    def share(at: int) -> str:
        return "chosen" if mine[at] else f"{min(100 * int(copies[at]) // whole, 100)}%"

    def hover(at: int) -> str:
        size = formatting.exact_bytes_text(int(copies[at]))
        text = f"has {size} of {formatting.bytes_text(whole)}"
        if mine[at]:
            text = f"chosen; has {size} of this data"
        return frame.hover([f"device {mesh.devices[at]} · {mesh_layout.coordinates_text(mesh, at)}", text])

    return mesh_layout.draw(
        mesh,
        grid,
        np.where(mine, len(_COLORS), step),
        (*_COLORS, _CHOSEN),
        mesh_layout.device_forms(mesh, share),
        lambda positions: [hover(at) for at in positions],
        heading="Copies on other devices",
        notes=[
            f"mesh {mesh_text(mesh)}; yellow: the chosen devices; the darker, the "
            f"more of their {formatting.bytes_text(whole)} a device holds; palest: less than 0.5%"
        ],
        width_px=width_px,
    )
