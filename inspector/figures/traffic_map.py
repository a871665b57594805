"""Device × device: the bytes that collectives send from each device to each other one. Modelled."""

from __future__ import annotations

import plotly.graph_objects as go

from inspector.compiled.device_traffic import ASSUMED, DeviceTraffic
from inspector.core.formatting import counted
from inspector.core.snapshot import Mesh
from inspector.figures import device_grid
from inspector.figures.device_grid import MOST_DEVICES


def traffic_map(
    found: DeviceTraffic,
    mesh: Mesh,
    *,
    of: str = "one run",
    width_px: int = 480,
    most_devices: int = MOST_DEVICES,
) -> go.Figure | None:
    """From each device (rows) to each device (columns), in mesh order; None where nothing is sent.

    Of more than `most_devices`, neighbours share a cell.
    """
    if not found.sent.any():
        return None
    cells = device_grid.grid(mesh.devices, mesh.devices, found.sent, most_devices)
    return device_grid.device_grid(
        cells,
        title=f"Bytes from device to device in {of}",
        notes=notes(found, cells.longest_run),
        verb="sent",
        width_px=width_px,
    )


def notes(found: DeviceTraffic, run: int) -> list[str]:
    """What is assumed, what is left out, and how many devices share a cell's side."""
    said = [f"modelled: {ASSUMED}, every branch taken"]
    if run > 1:
        said.append(f"{run} neighbouring devices to a cell's side")
    if found.left_out:
        of = f"{found.left_out} of {counted(found.counted + found.left_out, 'collective')}"
        said.append(f"{of} left out: executions, devices or bytes unknown")
    return said
