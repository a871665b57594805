"""What a TPU's compiler says where a program does not fit into a device's memory, as figures.

It says so in one of two ways: at once, from a lower bound, "… the total memory required for HLO temporaries
(544.00G) exceeds available HBM (15.75G)"; or when it has laid everything out, "Used 18.35G of 15.48G hbm",
and then lists what takes the most. "HLO temporaries" has arguments and outputs in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Finding, Snapshot

CODE = "out-of-memory"
MOST_CHARACTERS = (
    20_000  # of the compiler's message that are kept; it lists at most some twenty arrays
)

_SIZE = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s?([KMGTP]?)i?B?"
_REQUIRED = re.compile(
    rf"memory required[^()\n]{{0,80}}\({_SIZE}\) exceeds available (\w{{1,12}}) \({_SIZE}\)"
)
_USED = re.compile(rf"Used {_SIZE} of {_SIZE} (\w{{1,12}})\b")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


@dataclass(frozen=True)
class Shortage:
    """Bytes of one device that a program needs and that there are, in the memory that is short.

    Both are rounded as the compiler wrote them, to a hundredth of its unit. `message` is all it said.
    """

    needed: int
    available: int
    memory: str
    message: str


def shortage(message: str) -> Shortage | None:
    """The figures of a compiler's message; None where it is about something else."""
    if found := _REQUIRED.search(message):
        needed, needed_unit, memory, available, available_unit = found.groups()
    elif found := _USED.search(message):
        needed, needed_unit, available, available_unit, memory = found.groups()
    else:
        return None
    return Shortage(
        _bytes(needed, needed_unit),
        _bytes(available, available_unit),
        memory.upper(),
        message[:MOST_CHARACTERS],
    )


def finding(program: str, target: str, short: Shortage) -> Finding:
    """The finding that a program does not fit: an answer, not a failure."""
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


def refused(found: Snapshot) -> tuple[Finding, ...]:
    """The findings that a program does not fit, one a program."""
    return tuple(one for one in found.findings if one.code == CODE)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
