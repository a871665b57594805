"""Device × device: the bytes that move from each device of the old layout to each of the new layout.

Bytes that stay on their device are grey; bytes that move are colored by amount.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.snapshot import Transfer
from inspector.figures import device_grid
from inspector.figures.device_grid import MOST_DEVICES, Grid, Parts


def grid(transfer: Transfer, most: int = MOST_DEVICES) -> Grid:
    """Sum the routes over runs of neighboring devices, at most `most` runs per side."""
    row = {device: place for place, device in enumerate(transfer.sources)}
    column = {device: place for place, device in enumerate(transfer.targets)}
    # A file may name devices that it does not list.
    routes = [
        (row[source], column[target], size, source == target)
        for source, target, size in transfer.routes
        if source in row and target in column
    ]
    rows, columns, sizes, kept = np.array(routes, dtype=np.int64).reshape(-1, 4).T
    return device_grid.grid(
        transfer.sources, transfer.targets, rows, columns, sizes, kept.astype(bool), most
    )


def transfer_map(
    transfer: Transfer,
    *,
    title: str = "Bytes from device to device",
    parts: Parts | None = None,
    width_px: int = 760,
    most_devices: int = MOST_DEVICES,
) -> go.Figure | None:
    """Return the bytes from each device (rows) to each device (columns); None without devices.

    Args:
      parts: for one array, the index ranges that move from source to target, for the hover text.
      most_devices: if there are more on one side, neighbors share a cell.
    """
    if not transfer.sources or not transfer.targets:
        return None
    cells = grid(transfer, most_devices)
    note = "grey stays on its device, color moves to another device"
    if cells.longest_run > 1:
        note += f"; each cell side is {cells.longest_run} neighboring devices"
    notes = [note]
    old, new = set(transfer.sources), set(transfer.targets)
    for only, which in ((old - new, "old"), (new - old, "new")):
        if only:
            noun = "device" if len(only) == 1 else "devices"
            devices = formatting.devices_text(sorted(only))
            notes.append(f"{noun} {devices} only in the {which} layout")
    return device_grid.device_grid(
        cells, title=title, notes=notes, verb="moved", parts=parts, width_px=width_px
    )
