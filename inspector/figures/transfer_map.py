"""Device × device: the bytes that move from each device of the old layout to each of the new one.

What a device keeps is grey, what moves is colored by its bytes. Many devices are drawn in runs of
neighbours.
"""

from __future__ import annotations

import plotly.graph_objects as go

from inspector.core import formatting
from inspector.core.snapshot import Transfer
from inspector.figures import device_grid
from inspector.figures.device_grid import MOST_DEVICES, Grid, Parts
from inspector.guides.restore import transfer


def grid(found: Transfer, most: int = MOST_DEVICES) -> Grid:
    """The routes summed over runs of neighbouring devices, at most `most` runs on a side."""
    return device_grid.grid(found.sources, found.targets, transfer.dense(found), most)


def transfer_map(
    found: Transfer,
    *,
    title: str = "Bytes from device to device",
    parts: Parts | None = None,
    width_px: int = 760,
    most_devices: int = MOST_DEVICES,
) -> go.Figure:
    """From each device (rows) to each device (columns), with what each sends and receives.

    Args:
      parts: of one array, the index ranges that go from source to target, to be shown under the pointer.
      most_devices: of more devices on one side, neighbours share a cell.
    """
    cells = grid(found, most_devices)
    return device_grid.device_grid(
        cells,
        title=title,
        notes=_notes(found, cells),
        verb="moved",
        parts=parts,
        width_px=width_px,
    )


def _notes(found: Transfer, cells: Grid) -> list[str]:
    old, new = set(found.sources), set(found.targets)
    notes = ["grey stays on its device, color moves to another"]
    if cells.longest_run > 1:
        notes[0] += f"; {cells.longest_run} neighbouring devices to a cell's side"
    for only, which in ((old - new, "old"), (new - old, "new")):
        if only:
            noun = "device" if len(only) == 1 else "devices"
            notes.append(
                f"{noun} {formatting.devices_text(sorted(only))} only in the {which} layout"
            )
    return notes
