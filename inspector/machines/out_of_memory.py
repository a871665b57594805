"""Parse the TPU compiler's message that a program exceeds the memory of a device.

The message has one of two forms. An early lower bound: "… the total memory required for HLO temporaries
(544.00G) exceeds available HBM (15.75G)", which includes arguments and outputs. Or the result of buffer
assignment: "Used 18.35G of 15.48G hbm", followed by the largest allocations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Finding, Snapshot

CODE = "out-of-memory"
MAX_MESSAGE = 20_000  # characters; the compiler lists about twenty arrays

_SIZE = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s?([KMGTP]?)i?B?"
_REQUIRED = re.compile(
    rf"memory required[^()\n]{{0,80}}\({_SIZE}\) exceeds available (\w{{1,12}}) \({_SIZE}\)"
)
_USED = re.compile(rf"Used {_SIZE} of {_SIZE} (\w{{1,12}})\b")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


@dataclass(frozen=True)
class Shortage:
    """Bytes that a program needs on one device and that are available, to 1/100 of the compiler's unit.

    memory: the kind of memory, such as HBM. message: the compiler's message, at most `MAX_MESSAGE` long.
    """

    needed: int
    available: int
    memory: str
    message: str


def shortage(message: str) -> Shortage | None:
    """Return the figures in a compiler's message; None if it is about something else."""
    if match := _REQUIRED.search(message):
        needed, needed_unit, memory, available, available_unit = match.groups()
    elif match := _USED.search(message):
        needed, needed_unit, available, available_unit, memory = match.groups()
    else:
        return None
    return Shortage(
        round(float(needed) * _UNITS[needed_unit]),
        round(float(available) * _UNITS[available_unit]),
        memory.upper(),
        message[:MAX_MESSAGE],
    )


def finding(program: str, target: str, short: Shortage) -> Finding:
    """Return the finding that a program exceeds the memory of a device of the target."""
    return Finding(
        level="error",
        code=CODE,
        message=(
            f"{program} does not fit: it needs {bytes_text(short.needed)} of {short.memory} on one "
            f"device of {target}, which has {bytes_text(short.available)}"
        ),
        bytes=short.needed - short.available,
        extra={
            "program": program,
            "needed": short.needed,
            "available": short.available,
            "compiler": short.message,
        },
    )


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return the out-of-memory findings of a Snapshot, at most one per program."""
    return tuple(one for one in snapshot.findings if one.code == CODE)
