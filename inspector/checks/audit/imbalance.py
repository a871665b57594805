"""Devices that hold more of the train state than others."""

from __future__ import annotations

import math

import numpy as np

from inspector.checks.audit import thresholds
from inspector.checks.audit.examined import Examined, finding
from inspector.core.formatting import devices_text
from inspector.core.snapshot import Finding
from inspector.core.totals import STATE_GROUPS

WHAT = "devices that hold more than others"

CODE = "imbalance"


def findings(examined: Examined) -> list[Finding]:
    """One if the fullest device holds distinctly more than the mean; none where a placement is unknown."""
    held = state_bytes_by_device(examined)
    if held is None or not held.size or held.mean() == 0:
        return []
    more = int(held.max() - held.mean())
    if more <= thresholds.MOST_IMBALANCE * held.mean() or more < thresholds.LEAST_BYTES:
        return []
    fullest = [examined.mesh.devices[at] for at in np.flatnonzero(held == held.max()).tolist()]
    one = len(fullest) == 1
    return [
        finding(
            "warning",
            CODE,
            f"Device{'s' * (not one)} {devices_text(fullest)} hold{'s' * one} "
            f"{examined.amount(int(held.max()))} of train state, the mean of all is "
            f"{examined.amount(int(held.mean()))}: the fullest device decides what fits, and the others have "
            "memory that nobody uses.",
            saved=more,
        )
    ]


def state_bytes_by_device(examined: Examined) -> np.ndarray | None:
    """(devices,) bytes of train state in mesh order; None where some array's placement is not known."""
    position = {device: at for at, device in enumerate(examined.mesh.devices)}
    held = np.zeros(examined.mesh.size)
    for array in examined.of_group(*STATE_GROUPS):
        if array.shards is not None and array.bytes is not None:
            elements = math.prod(array.shape)
            for shard in array.shards:
                if elements and shard.device in position:
                    part = math.prod(stop - start for start, stop in shard.index)
                    held[position[shard.device]] += array.bytes * part / elements
        elif array.bytes_per_device is not None:
            held += array.bytes_per_device
        else:
            return None
    return held
