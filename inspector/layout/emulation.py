"""What the machine that emulates the devices can hold, and what a layout needs there.

All emulated devices share this machine's memory, so that what is replicated on N devices is there N times.
"""

from __future__ import annotations

import os
from pathlib import Path

from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Snapshot
from inspector.layout import MOST_DEVICES

# During a step the old and the new train state are both alive: the step does not donate its input.
STATES_DURING_A_STEP = 2
# A limit that leaves room for the compiler and for everything else that runs here.
USABLE_SHARE = 0.8


def available_bytes() -> int:
    """Memory that a new program can have without swapping: the kernel's figure, and any cgroup's limit."""
    limits = [_meminfo_available(), _cgroup_available()]
    return min(limit for limit in limits if limit is not None)


def state_bytes_in_a_step(plan: Snapshot) -> int:
    """Bytes on all devices together for the train state before and after a step, and the gradients."""
    total = 0
    for array in plan.arrays:
        held = (array.bytes_per_device or 0) * (plan.mesh.size if plan.mesh else 1)
        if array.group in ("params", "opt_state", "other"):
            total += held * STATES_DURING_A_STEP
        if array.group == "params":
            total += held  # a gradient is laid out like its parameter
        if array.group in ("batch", "output"):
            total += held
    return total


def why_not_emulated(devices: int) -> str | None:
    """Why a mesh of so many devices cannot be run here, in a sentence; None if it can."""
    if devices <= MOST_DEVICES:
        return None
    return (
        f"A mesh of {devices:,} devices is planned only: at most {MOST_DEVICES:,} are emulated. For a TPU "
        "slice or GPU nodes as its target it can be compiled."
    )


def refuse_too_large(needed: int, available: int, what: str) -> None:
    """Refuse what does not fit.

    Raises:
      InvalidInput: `needed` bytes are more than the usable share of `available` bytes.
    """
    limit = int(available * USABLE_SHARE)
    if needed > limit:
        raise InvalidInput(
            f"{what} needs about {bytes_text(needed)} on this machine, which holds all emulated "
            f"devices, but at most {bytes_text(limit)} is allowed "
            f"({USABLE_SHARE:.0%} of what is free); make the sizes smaller or replicate less"
        )


def _meminfo_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_available() -> int | None:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None  # no cgroup v2, or not in one with a limit
