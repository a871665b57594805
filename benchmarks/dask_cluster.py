"""A Dask scheduler and its workers as processes of this machine, which can be killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import processes
from benchmarks.browser import ROOT

# A scheduler tries for so long to reach a worker that was killed with a result, 30 s by default.
_SETTINGS = {"PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}


class Cluster:
    """A Dask scheduler and its workers.

    Args:
      folder: for the output of the processes.
      workers: how many are started.
    """

    def __init__(self, folder: Path, workers: int = 1) -> None:
        self._folder = folder
        self._port = 0
        self.workers: list[subprocess.Popen[bytes]] = []
        self.start_scheduler()
        for _ in range(workers):
            self.start_worker()

    def start_scheduler(self) -> None:
        """Start a scheduler, at the address of the one before if there was one."""
        self.scheduler, log = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", str(self._port), "--no-dashboard"
        )
        match = processes.until(
            lambda: re.search(r"tcp://127\.0\.0\.1:(\d+)", log.read_text()), "the scheduler"
        )
        assert isinstance(match, re.Match)
        self.address, self._port = match[0], int(match[1])

    def start_worker(self) -> None:
        """Start a worker with one thread."""
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        self.workers.append(self._start("worker", self.address, *options)[0])

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process in self.workers:
            self.workers.remove(process)

    def close(self) -> None:
        """Kill all processes."""
        for process in (*self.workers, self.scheduler):
            self.end(process)

    def _start(self, kind: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._folder / f"{kind}-{time.monotonic_ns()}.log"
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments],
                cwd=self._folder,
                env=os.environ | _SETTINGS,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        return process, log
