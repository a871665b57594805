"""Parse the TPU compiler's message that a program exceeds the memory of a device.

The message has one of two forms. An early lower bound: "… the total memory required for HLO temporaries
(544.00G) exceeds available HBM (15.75G)", which includes arguments and outputs. Or the result of buffer
assignment: "Used 18.35G of 15.48G hbm", followed by the largest allocations.
"""

import re
from dataclasses import dataclass

from inspector.records.snapshot import Finding, Snapshot
from inspector.text.formatting import bytes_text
from inspector.text.program_names import subject

CODE = "out-of-memory"
MAX_MESSAGE = 20_000  # characters; the compiler lists about twenty arrays

_SIZE = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s?([KMGTP]?)i?B?"
_REQUIRED = re.compile(
    rf"memory required[^()\n]{{0,80}}\({_SIZE}\) exceeds available (\w{{1,12}}) \({_SIZE}\)"
)
_USED = re.compile(rf"Used {_SIZE} of {_SIZE} (\w{{1,12}})\b")
_LISTED = "Largest program allocations in"
_BLOCK = re.compile(r"\n\s{0,8}\d{1,3}\.\s")
_BLOCK_SIZE = re.compile(r"Size:\s?([0-9.]{1,12}[KMGTP]?)")
_SHAPE = re.compile(r"\n\s{0,8}Shape:\s?([a-z0-9]{1,16}\[[0-9,]{0,100}\])")
_OP_NAME = re.compile(r'op_name="([^"\n]{1,300})"')
_FILE = re.compile(r'source_file="([^"\n]{1,1000})"')
_LINE = re.compile(r"source_line=(\d{1,9})")
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


@dataclass(frozen=True)
class Allocation:
    """One of the largest buffers in the compiler's message. Unknown facts are None.

    size: as the compiler writes it, such as 2.25G. shape: as HLO writes it. operation: JAX's name of it.
    source: file and line.
    """

    size: str
    shape: str | None
    operation: str | None
    source: str | None


def allocations(message: str) -> tuple[Allocation, ...]:
    """Return the largest buffers that the compiler lists, the largest first; empty if it lists none."""
    _, separator, listed = message.partition(_LISTED)
    if not separator:
        return ()
    allocations = []
    for block in _BLOCK.split(listed)[1:]:
        size = _BLOCK_SIZE.match(block)
        if size is None:
            continue
        shape, name = _SHAPE.search(block), _OP_NAME.search(block)
        file, line = _FILE.search(block), _LINE.search(block)
        source = None
        if file is not None:
            place = file[1].replace("\\", "/").rpartition("/")[2]
            source = f"{place}:{line[1]}" if line is not None else place
        allocations.append(Allocation(size[1], shape and shape[1], name and name[1], source))
    return tuple(allocations)


def _largest_text(message: str) -> str:
    """Return what takes the most of the memory, as the beginning of another sentence; "" if unknown."""
    listed = allocations(message)
    if not listed:
        return ""
    alike = [allocation for allocation in listed if allocation == listed[0]]
    several = f"{len(alike)} buffers of {listed[0].size} each" if len(alike) > 1 else listed[0].size
    of = f", {listed[0].shape}" if listed[0].shape else ""
    by = f" of {listed[0].operation}" if listed[0].operation else ""
    at = f" at {listed[0].source}" if listed[0].source else ""
    return f". Its largest allocation: {several}{of}{by}{at}"


def finding(program: str, target: str, short: Shortage) -> Finding:
    """Return the finding that a program exceeds the memory of a device of the target."""
    return Finding(
        level="error",
        code=CODE,
        message=(
            f"{subject(program)} does not fit: it needs {bytes_text(short.needed)} of {short.memory} on one "
            f"device of {target}, which has {bytes_text(short.available)}{_largest_text(short.message)}"
        ),
        bytes=short.needed - short.available,
        program=program,
        needed=short.needed,
        available=short.available,
        compiler=short.message,
    )


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return the out-of-memory findings of a Snapshot, at most one per program."""
    return tuple(finding for finding in snapshot.findings if finding.code == CODE)
