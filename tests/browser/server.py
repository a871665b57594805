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

from benchmarks import processes
from inspector.files import private_database
from tests.paths import ROOT

WORKER = "inspector.jobs.engine.worker"


class Server:
    """`streamlit run app.py` on a free port, or `serve` with these options. Needs Linux's /proc.

    library: the folder of its library, instead of that of all tests of this process.
    url: of the proxy through which alone it answers.
    """

    def __init__(
        self,
        serve: Sequence[str] | None = None,
        port: int | None = None,
        host: str = "127.0.0.1",
        library: Path | None = None,
        url: str | None = None,
    ) -> None:
        self.port = port or free_port()
        self.url = url or f"http://{host}:{self.port}"
        # In the folder of this process, which is deleted at its end.
        self._log = tempfile.NamedTemporaryFile(suffix=".log", delete=False)  # noqa: SIM115
        command = ["streamlit", "run", "app.py", "--server.headless", "true", "--server.port"]
        if serve is not None:
            command = ["inspector", "serve", *serve, "--port"]
        self._popen = subprocess.Popen(
            [sys.executable, "-m", *command, str(self.port)],
            cwd=ROOT,
            env=os.environ | ({} if library is None else {private_database.VARIABLE: str(library)}),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._popen.pid
        try:
            processes.until(self._answers, "the server's answer")
        except BaseException:
            self._popen.kill()
            raise

    def workers(self, devices: int | None = None) -> list[int]:
        """Return the process ids of the workers, or of those with this number of devices."""
        found = []
        for pid in processes.children(self.pid):
            if WORKER not in processes.command(pid) or not processes.alive(pid):
                continue
            if devices is None or f"JAX_NUM_CPU_DEVICES={devices}" in processes.variables(pid):
                found.append(pid)
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server alone, and wait until it is gone. `status` is then its exit status."""
        os.kill(self.pid, number)
        self.status = self._popen.wait(60)

    def stop(self) -> list[int]:
        """Stop with SIGTERM. Kill and return the processes that are still alive."""
        mine = [self.pid, *processes.descendants(self.pid)]
        if self._popen.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            processes.until(lambda: not any(map(processes.alive, mine)), "the end of server and workers")
        except TimeoutError:
            left = [pid for pid in mine if processes.alive(pid)]
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
