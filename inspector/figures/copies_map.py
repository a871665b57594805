"""The mesh colored by the share that each device holds of the data of some chosen devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.formatting import mesh_text
from inspector.core.snapshot import Mesh
from inspector.figures import frame, mesh_layout, palette

# By share: almost nothing, less than half, half or more, everything. Black text can be read on each.
_COLORS = (palette.REPLICATED, "#BFE3F5", "#8CCBEE", palette.OKABE_ITO[4])
_CHOSEN = palette.OKABE_ITO[1]


def copies_map(
    mesh: Mesh, copies: np.ndarray, chosen: Sequence[int], whole: int, *, width_px: int = 480
) -> go.Figure | None:
    """Return the mesh with the share of each device; None if the chosen devices hold nothing.

    Selecting gives device ids.

    Args:
      copies: (devices,) bytes in mesh order, from `device_holdings.copies_of`.
      chosen: ids of the chosen devices.
      whole: bytes of the distinct data that the chosen devices hold together.
    """
    if whole <= 0 or not mesh_layout.has_devices(mesh):
        return None
    mine = np.isin(np.array(mesh.devices), np.array(list(chosen)))
    # A share that rounds to 0% is grey: a step counter on every device is not worth showing.
    step = np.select([copies * 200 < whole, copies >= whole, copies * 2 >= whole], [0, 3, 2], 1)
    # The chosen devices have everything; on a mesh too large to draw they do not prevent folding.
    grid = mesh_layout.mesh_grid(
        mesh, [np.where(mine, len(_COLORS) - 1, step)], first=int(np.argmax(mine))
    )
    if mesh_layout.cell_count(mesh, grid.folded) > mesh_layout.MOST_CELLS:
        return None

    def share(at: int) -> str:
        return "chosen" if mine[at] else f"{min(100 * int(copies[at]) // whole, 100)}%"

    def hover(at: int) -> str:
        size = formatting.exact_bytes_text(int(copies[at]))
        text = f"has {size} of {formatting.bytes_text(whole)}"
        if mine[at]:
            text = f"chosen; has {size} of this data"
        return frame.hover(
            [f"device {mesh.devices[at]} · {mesh_layout.coordinates_text(mesh, at)}", text]
        )

    forms: list[Callable[[int], str]] = [
        lambda at: f"device {mesh.devices[at]}\n{share(at)}",
        lambda at: f"{mesh.devices[at]}\n{share(at)}",
        lambda at: str(mesh.devices[at]),
    ]
    return mesh_layout.draw(
        mesh,
        grid,
        np.where(mine, len(_COLORS), step),
        (*_COLORS, _CHOSEN),
        forms,
        lambda positions: [hover(at) for at in positions],
        heading="Copies on other devices",
        notes=[
            f"mesh {mesh_text(mesh)}; orange: the chosen devices; the darker the blue, the "
            f"more of their {formatting.bytes_text(whole)} a device holds; grey: less than 0.5%"
        ],
        width_px=width_px,
    )
