"""A job that compiles a small program for several TPU slices, with JAX's own facts about the devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

JOBS = {"look": f"{__name__}:look"}


def look(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Return the Snapshot of the layout, and `slice_index` and `coords` of the devices by id."""
    from inspector import layout as layouts
    from inspector.compiling.compile_layout import compile_layout, devices_of
    from inspector.machines import targets

    layout = layouts.from_json(payload["layout"])
    target = targets.parse(layout.target)
    snapshot = compile_layout(layout, target, report, layout.device_order)
    devices = devices_of(target)
    return {
        "snapshot": json.loads(json.dumps(snapshot.to_json())),
        "slice_index": {str(device.id): device.slice_index for device in devices},
        "coords": {str(device.id): list(device.coords) for device in devices},
        "processes": {str(device.id): device.process_index for device in devices},
    }
