"""Device × device: the modelled bytes that collectives send from each device to each other device."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from inspector.compiled.device_traffic import ASSUMED, DeviceTraffic
from inspector.core.formatting import counted
from inspector.core.snapshot import Mesh
from inspector.figures import device_grid, mesh_layout
from inspector.figures.device_grid import MOST_DEVICES


def traffic_map(
    traffic: DeviceTraffic,
    mesh: Mesh,
    *,
    of: str = "one run",
    width_px: int = 480,
    most_devices: int = MOST_DEVICES,
) -> go.Figure | None:
    """Return the bytes from each device (rows) to each device (columns), in mesh order.

    If there are more than `most_devices`, neighbors share a cell. Return None if nothing is sent.
    """
    if not traffic.sent.any() or not mesh_layout.has_devices(mesh):
        return None
    senders, receivers = np.nonzero(traffic.sent)
    grid = device_grid.grid(
        mesh.devices,
        mesh.devices,
        senders * traffic.run,
        receivers * traffic.run,
        traffic.sent[senders, receivers],
        most=most_devices,
    )
    notes = [f"modelled: {ASSUMED}, every branch taken"]
    if grid.longest_run > 1:
        notes.append(f"each cell side is {grid.longest_run} neighboring devices")
    if traffic.left_out:
        total = counted(traffic.counted + traffic.left_out, "collective")
        notes.append(
            f"{traffic.left_out} of {total} left out: executions, devices or bytes unknown"
        )
    return device_grid.device_grid(
        grid,
        title=f"Bytes from device to device in {of}",
        notes=notes,
        verb="sent",
        width_px=width_px,
    )
