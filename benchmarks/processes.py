"""Processes of this machine: children, memory, and whether they are alive. Most needs Linux's /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

# Seconds until a condition that never holds is an error; nothing measures it. A compile takes a minute on two
# cores that other processes keep busy.
PATIENCE = 180.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def alive(pid: int) -> bool:
    """Return whether a process runs. A zombie process does not, if there is /proc."""
    if Path("/proc/self/stat").exists():
        fields = _stat(pid)
        return bool(fields) and fields[0] not in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in numbers if (fields := _stat(pid)) and int(fields[1]) == parent]


def descendants(parent: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started."""
    found = children(parent)
    return found + [pid for child in found for pid in descendants(child)]


def variables(pid: int) -> list[str]:
    """Return the environment variables of a process, such as `HOME=/root`; none if it has ended."""
    return _read(pid, "environ").split("\0")


def cpu_ticks(pid: int) -> int:
    """Return the processor time of a process in clock ticks."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def command(pid: int) -> list[str]:
    """Return the words of the command of a process; none if it has ended."""
    return _read(pid, "cmdline").split("\0")


def resident_bytes(pids: list[int]) -> int:
    """Return the memory of processes that is not shared with files, together."""
    total = 0
    for pid in pids:
        fields = _read(pid, "statm").split()
        if fields:
            total += (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    return total


def kill(pid: int) -> bool:
    """Send SIGKILL. Return whether the process existed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def until(condition: Callable[[], object], what: str = "the condition", seconds: float = PATIENCE) -> object:
    """Wait until the condition is true, and return its value.

    Raises:
      TimeoutError: it is not true within `seconds`.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.005)
    raise TimeoutError(f"{what}: not within {seconds:g} s")


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, …"""
    return _read(pid, "stat").rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
