"""Cancel the jobs of browser sessions that have ended, and free the memory of their open files."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from inspector.jobs.engine import Pool
from inspector.jobs.engine.job import digest_of_session
from inspector.jobs.opened_files import OpenedFiles
from inspector.media.streamlit.streamlit_internals import is_connected

# For a connection that is lost for a moment. Streamlit keeps the session longer.
GRACE_SECONDS = 60.0
_CHECK_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ClosedTabs:
    """Watches the sessions that wait for jobs. Their jobs end `grace` seconds after their connection.

    Searches go on. Its open files are forgotten: Streamlit keeps a session for minutes, and longer if no
    other one ends.

    Args:
      close: forget a session, which it calls with its id. None forgets none.
    """

    pool: Pool
    connected: Callable[[str], bool] = is_connected
    grace: float = GRACE_SECONDS
    opened: OpenedFiles = field(default_factory=OpenedFiles)
    close: Callable[[str], object] | None = None
    _lost: dict[str, float] = field(default_factory=dict, init=False)  # when first seen without a connection
    _end: threading.Event = field(default_factory=threading.Event, init=False)

    def start(self) -> None:
        """Watch in a thread until `stop`."""
        threading.Thread(target=self._watch, name="closed tabs", daemon=True).start()

    def stop(self) -> None:
        self._end.set()

    def check(self, now: float) -> None:
        """Cancel the jobs of sessions that are gone for `grace` seconds. `now` is on the monotonic clock."""
        opened = self.opened.sessions()
        waiting = self.pool.sessions() | opened
        gone = {session for session in waiting if not self.connected(session)}
        self._lost = {session: self._lost.get(session, now) for session in gone}
        for session, since in self._lost.items():
            if now - since >= self.grace:
                digest = digest_of_session(session)
                _log.info("session %s is closed: its jobs are cancelled", digest)
                self.pool.leave(session)
                if session in opened:
                    self.opened.forget(session)
                    if self.close is not None:
                        self.close(session)

    def _watch(self) -> None:
        while not self._end.wait(_CHECK_SECONDS):
            try:
                self.check(time.monotonic())
            except Exception:  # the thread must go on
                _log.exception("The sessions could not be checked.")
