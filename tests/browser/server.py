"""The real server and its processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from inspector.core import user_folder
from tests.paths import ROOT
from tests.service.engine.waiting import alive, until

WORKER = "inspector.service.engine.worker"


class Server:
    """`streamlit run app.py` on a free port, or `serve` with these options. Needs Linux's /proc.

    library: the folder of its library, instead of that of all tests of this process.
    """

    def __init__(
        self,
        serve: Sequence[str] | None = None,
        port: int | None = None,
        host: str = "127.0.0.1",
        library: Path | None = None,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://{host}:{self.port}"
        self._log = tempfile.NamedTemporaryFile(prefix="dashboard-", suffix=".log")  # noqa: SIM115
        command = ["streamlit", "run", "app.py", "--server.headless", "true", "--server.port"]
        if serve is not None:
            command = ["inspector", "serve", *serve, "--port"]
        self._popen = subprocess.Popen(
            [sys.executable, "-m", *command, str(self.port)],
            cwd=ROOT,
            env=os.environ | ({} if library is None else {user_folder.VARIABLE: str(library)}),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._popen.pid
        try:
            until(self._answers, "the server's answer")
        except BaseException:
            self._popen.kill()
            raise

    def workers(self, devices: int | None = None) -> list[int]:
        """Return the process ids of the workers, or of those with this number of devices."""
        found = []
        for pid in _children(self.pid):
            if WORKER not in _read(pid, "cmdline").split("\0") or not alive(pid):
                continue
            variables = _read(pid, "environ").split("\0")
            if devices is None or f"JAX_NUM_CPU_DEVICES={devices}" in variables:
                found.append(pid)
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server alone, and wait until it is gone. `status` is then its exit status."""
        os.kill(self.pid, number)
        self.status = self._popen.wait(60)

    def stop(self) -> list[int]:
        """Stop with SIGTERM. Kill and return the processes that are still alive."""
        mine = [self.pid, *_descendants(self.pid)]
        if self._popen.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            until(lambda: not any(map(alive, mine)), "the end of server and workers")
        except AssertionError:
            left = [pid for pid in mine if alive(pid)]
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            return left
        return []

    def log(self) -> str:
        """Return the output of the server."""
        return Path(self._log.name).read_text(errors="replace")

    def _answers(self) -> bool:
        assert self._popen.poll() is None, f"the server ended: {self.log()}"
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


def cpu_ticks(pid: int) -> int:
    """Return the processor time of a process in clock ticks."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if fields else 0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""  # it has ended


def _children(parent: int) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [
        pid
        for pid in numbers
        if (fields := _read(pid, "stat").rpartition(")")[2].split()) and int(fields[1]) == parent
    ]


def _descendants(parent: int) -> list[int]:
    found = _children(parent)
    return found + [pid for child in found for pid in _descendants(child)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
