"""Start a worker process, wait for a condition, and check whether a process is alive."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.paths import ROOT

# Seconds until a condition that never holds fails the test; no test measures it. A compile takes a minute
# on two cores that other tests keep busy.
PATIENCE = 180.0


def until(
    condition: Callable[[], object], what: str = "the condition", seconds: float = PATIENCE
) -> object:
    """Wait until the condition is true, and return its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError(f"{what} did not hold within {seconds:g} s")


def alive(pid: int) -> bool:
    """Return whether a process still runs. A zombie process does not."""
    try:
        os.kill(pid, 0)
        if Path("/proc/self/stat").exists():
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False
    return True


def start_worker(lifeline: int, *arguments: str, new_session: bool = False) -> subprocess.Popen:
    """Start a worker process of the test jobs, which holds one end of the lifeline pipe."""
    module = ("-m", "inspector.service.engine.worker", "tests.service.engine.jobs")
    return subprocess.Popen(
        [sys.executable, *module, str(lifeline), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(lifeline,),
        start_new_session=new_session,
    )
