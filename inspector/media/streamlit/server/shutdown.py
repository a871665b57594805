"""End a team server: running jobs finish within a limit, and no new ones begin."""

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from inspector.service.engine import Pool

# Seconds after the last job for pages to fetch its result.
_FETCH_SECONDS = 2.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class GracefulShutdown:
    """Handles SIGTERM. The first one lets jobs finish for at most `seconds`, the second ends them.

    `stop` ends the server. It is called from a thread.
    """

    pool: Pool
    seconds: float
    stop: Callable[[], None]
    began: bool = field(default=False, init=False)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.began:
            self.stop()
            return
        self.began = True
        threading.Thread(target=self._drain, name="shutdown", daemon=True).start()

    def _drain(self) -> None:
        busy = bool(self.pool.jobs())
        _log.warning("shutting down: no new jobs; running jobs have %.0f seconds", self.seconds)
        until = time.monotonic() + self.seconds
        try:
            finished = self.pool.drain(self.seconds)
            _log.warning("all jobs ended" if finished else "the time is over: jobs are cancelled")
            if busy and finished:
                time.sleep(min(_FETCH_SECONDS, max(until - time.monotonic(), 0.0)))
        finally:
            self.stop()


def install(pool: Pool, seconds: float) -> GracefulShutdown:
    """Handle SIGTERM in this process, whose handler is that of uvicorn. Call it in the main thread."""
    before: Any = signal.getsignal(signal.SIGTERM)
    server: Any = getattr(before, "__self__", None)

    def stop() -> None:
        if hasattr(server, "should_exit"):
            server.should_exit = True  # uvicorn's way to stop from the program; exit status 0
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    shutdown = GracefulShutdown(pool, seconds, stop)
    signal.signal(signal.SIGTERM, shutdown)
    return shutdown
