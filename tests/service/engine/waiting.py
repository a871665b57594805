"""Wait for a condition, and check whether a process is alive."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 60.0  # seconds until a condition that never holds fails the test; no test measures it


def until(condition: Callable[[], object], what: str = "the condition") -> object:
    """Wait until the condition is true, and return its value."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError(f"{what} did not hold within {PATIENCE:g} s")


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        if Path("/proc/self/stat").exists():
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False
    return True
