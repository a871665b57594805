"""The mesh, colored by how much each device has of what some devices hold: who could stand in for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.snapshot import Mesh
from inspector.figures import (
    cells,
    frame,
    labels,
    lattice,
    mesh_fold,
    mesh_map,
    palette,
)
from inspector.figures.holdings import coordinates_text

# By the share that a device has: nothing, less than half, half and more, all. Black reads on each.
_COLORS = (palette.REPLICATED, "#BFE3F5", "#8CCBEE", palette.OKABE_ITO[4])
_CHOSEN = palette.OKABE_ITO[1]


def copies_map(
    mesh: Mesh, copies: np.ndarray, chosen: Sequence[int], whole: int, *, width_px: int = 480
) -> go.Figure | None:
    """Each device by the share that it has of what the chosen ones hold; None where they hold nothing.

    Selecting gives device ids.

    Args:
      copies: (devices,) bytes in mesh order, as `device_holdings.copies_of` gives them.
      chosen: ids of the devices asked about.
      whole: bytes of the distinct data that they hold together.
    """
    mine = np.isin(np.array(mesh.devices), np.array(list(chosen)))
    if not whole:
        return None
    # A counter that every device has is nothing: what reads 0% is grey.
    step = np.where(
        copies * 200 < whole, 0, np.where(copies >= whole, 3, np.where(copies * 2 >= whole, 2, 1))
    )
    # Who is asked about has all of it: a mesh too large to draw is folded as if it were any other such.
    grid = mesh_map.mesh_grid(
        mesh, [np.where(mine, len(_COLORS) - 1, step)], first=int(np.argmax(mine))
    )
    if mesh_fold.cells(mesh, grid.folded) > mesh_fold.MOST_CELLS:
        return None
    step = np.where(mine, len(_COLORS), step)
    sheet, width, height, remark = mesh_map.layout(grid, mesh, width_px)
    positions = grid.position.reshape(-1).tolist()
    columns, rows = sheet.columns.edges(width), sheet.rows.edges(height)
    size = (min(b - a for a, b in columns), min(b - a for a, b in rows))
    text = _text(mesh, copies, whole, mine, positions, size)
    hover = [_hover(mesh, position, int(copies[position]), whole, mine) for position in positions]
    numbers = [int(step[position]) for position in positions]
    colors = (*_COLORS, _CHOSEN)
    traces = [
        *_heatmaps(sheet, columns, rows, numbers, colors, text),
        cells.selection(
            sheet, columns, rows, [mesh.devices[position] for position in positions], hover
        ),
    ]
    return frame.map_figure(
        traces,
        width_px,
        width,
        height,
        heading="Who else has it",
        notes=[
            f"mesh {mesh_map.axes_text(mesh)}; orange: asked about; the darker the blue, the more of "
            f"{formatting.bytes_text(whole)} the device has, too; grey: as good as nothing",
            mesh_fold.text(mesh, grid.folded),
        ],
        below=[remark] if remark else [],
        row_ticks=([], []),
        column_ticks=([], []),
        to_scale=False,
    )


def _text(
    mesh: Mesh,
    copies: np.ndarray,
    whole: int,
    mine: np.ndarray,
    positions: Sequence[int],
    size: tuple[float, float],
) -> lattice.Text:
    def share(cell: int) -> str:
        if mine[positions[cell]]:
            return "asked"
        return f"{min(100 * int(copies[positions[cell]]) // whole, 100)}%"

    def device(cell: int) -> int:
        return mesh.devices[positions[cell]]

    forms: list[Callable[[int], str]] = [
        lambda cell: f"device {device(cell)}\n{share(cell)}",
        lambda cell: f"{device(cell)}\n{share(cell)}",
        lambda cell: str(device(cell)),
    ]
    return lattice.fit_text(forms, range(len(positions)), [size] * len(positions))


def _heatmaps(
    sheet: lattice.Sheet,
    columns: cells.Edges,
    rows: cells.Edges,
    numbers: Sequence[int],
    colors: Sequence[str],
    text: lattice.Text,
) -> list[go.Heatmap]:
    """The cells as `cells.heatmaps` draws blocks, in these colors."""
    drawn = cells.heatmaps(sheet, columns, rows, numbers, len(colors), text, None)
    for trace in drawn:
        trace.update(
            colorscale=palette.steps(colors),
            zmin=-0.5,
            zmax=len(colors) - 0.5,
            textfont={"size": text.size_px, "color": palette.BLACK},
        )
    return drawn


def _hover(mesh: Mesh, position: int, size: int, whole: int, mine: np.ndarray) -> str:
    first = f"device {mesh.devices[position]} · {coordinates_text(mesh, position)}"
    if mine[position]:
        said = f"asked about; has {formatting.exact_bytes_text(size)} of what is held there"
    else:
        said = f"has {formatting.exact_bytes_text(size)} of {formatting.bytes_text(whole)}"
    return f"<b>{labels.escape(first)}</b><br>{labels.escape(said)}"
