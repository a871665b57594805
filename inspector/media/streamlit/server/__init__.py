"""The start and the stop of the Streamlit server, and the end of the jobs of closed tabs."""

import asyncio
import contextlib
import functools
import gzip
import importlib
import logging
import re
import resource
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from inspector import layout as layouts
from inspector.jobs import inspection, opened_files, own_model_registration, serving
from inspector.jobs.engine import Pool
from inspector.jobs.engine.job import digest_of_session
from inspector.jobs.opened_files import OpenedFiles
from inspector.media.streamlit.server.bounded_uploads import BoundedUploads
from inspector.media.streamlit.server.middleware import PLOTLY, READY, BehindProxy, SafeAnswers
from inspector.media.streamlit.streamlit_internals import close_session, is_connected
from inspector.text.errors import InvalidInput

_SESSION = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def hide_ids() -> None:
    """Write the digest of each session's id in the place of the id, in the log records of all libraries."""
    make = logging.getLogRecordFactory()

    def record_without_ids(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        record.msg = _hidden(record.msg)
        if isinstance(record.args, tuple):  # formatters read some of them one by one
            record.args = tuple(map(_hidden, record.args))
        return record

    logging.setLogRecordFactory(record_without_ids)


def _hidden(part: Any) -> Any:
    if not isinstance(part, str):
        return part
    return _SESSION.sub(lambda session: digest_of_session(session[0]), part)


_LEVEL = 4  # of gzip; a third of the bytes in 0.2 s


def plotly_answer(request: Request) -> Response:
    """Answer with the script, compressed if the browser accepts that."""
    headers = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(_script(), headers=headers, media_type="text/javascript")
    headers["Content-Encoding"] = "gzip"
    return Response(compressed(), headers=headers, media_type="text/javascript")


@functools.cache
def compressed() -> bytes:
    """Return the script, compressed once for all browsers."""
    return gzip.compress(_script(), _LEVEL, mtime=0)


def _script() -> bytes:
    return resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()


OPEN_FILES = 8192  # a session with a page has about three
PAGES = Path(__file__).parents[1] / "pages" / "entry.py"


@contextlib.asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Register the models of the command line, start JAX in a worker, and end all workers at the end."""
    hide_ids()
    own_model_registration.register_all(sys.argv[1:])
    _allow_open_files()
    service = inspection.shared()
    loop = asyncio.get_running_loop()
    # Streamlit forgets a session, and with it all that its pages hold, in the server's loop.
    tabs = ClosedTabs(
        service.pool,
        opened=opened_files.shared(),
        close=lambda session: loop.call_soon_threadsafe(close_session, session),
    )
    tabs.start()
    threading.Thread(target=_plan_first_layout, args=(service,), daemon=True).start()
    threading.Thread(target=compressed, daemon=True).start()
    # Plotly fails if it makes a figure while another session's thread imports pandas.
    importlib.import_module("pandas")
    try:
        yield
    finally:
        tabs.stop()
        service.close()
        serving.shared().close()


async def _ready(_: Request) -> PlainTextResponse:
    """Answer a load balancer: 200 if workers start, otherwise 503."""
    if not inspection.shared().is_ready():
        return PlainTextResponse("no worker has started", 503)
    return PlainTextResponse("ready")


# Arguments of `st.App` other than the pages.
ROUTES = [Route(READY, _ready), Route(PLOTLY, plotly_answer)]
MIDDLEWARE = [
    Middleware(SafeAnswers),
    Middleware(BehindProxy),
    Middleware(BoundedUploads),
]


def _allow_open_files() -> None:
    """Raise the limit on open files. macOS allows 256, and every session has several."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # the system can have a lower limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _plan_first_layout(service: inspection.Inspection) -> None:
    # An error here is not shown: the page makes the same plan and reports its errors.
    with contextlib.suppress(InvalidInput, RuntimeError):
        service.plan(layouts.parse(layouts.opening_fields()).unwrap())


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
