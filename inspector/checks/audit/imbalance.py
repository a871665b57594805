"""Devices that hold more of the train state than others."""

from __future__ import annotations

import math

import numpy as np

from inspector.checks.audit.context import LEAST_BYTES, AuditContext, finding
from inspector.core.formatting import devices_text
from inspector.core.snapshot import Finding
from inspector.core.totals import STATE_GROUPS

CODE = "imbalance"

# How far the fullest device may be above the mean.
_MOST_IMBALANCE = 0.05


def findings(context: AuditContext) -> list[Finding]:
    """Return one finding if the fullest device is well above the mean."""
    held = _state_bytes_by_device(context)
    if held is None or not held.size or held.mean() == 0:
        return []
    most, mean = int(held.max()), int(held.mean())
    more = int(held.max() - held.mean())
    if more <= _MOST_IMBALANCE * held.mean() or more < LEAST_BYTES:
        return []
    fullest = [context.mesh.devices[at] for at in np.flatnonzero(held == held.max()).tolist()]
    subject = (
        f"Device {fullest[0]} holds"
        if len(fullest) == 1
        else f"Devices {devices_text(fullest)} hold"
    )
    message = (
        f"{subject} {context.amount(most)} of train state; the mean is {context.amount(mean)}. The fullest "
        "device decides what fits."
    )
    return [finding("warning", CODE, message, saved=more)]


def _state_bytes_by_device(context: AuditContext) -> np.ndarray | None:
    """Return the bytes of train state per device, in mesh order, or None if a placement is unknown."""
    position = {device: at for at, device in enumerate(context.mesh.devices)}
    held = np.zeros(context.mesh.size)
    for array in context.of_group(*STATE_GROUPS):
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
