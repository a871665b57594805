"""Save a figure as a PNG or SVG file, drawn by a browser of this machine in a separate process.

Pictures are drawn one at a time. Each has a new process with a time limit. After the limit, the process and
everything that it started are killed, so a browser that hangs does not block other pictures.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from inspector.figures import stamp
from inspector.jobs import start
from inspector.media import picture_process
from inspector.text.errors import InvalidInput, shown

FORMATS = {"png": "image/png", "svg": "image/svg+xml"}
SCALE = 2  # pixels of a PNG per pixel of the figure, for slides and high-resolution screens
LIMIT_SECONDS = 45.0  # a picture takes two seconds, on a busy machine more
_LAST_WORDS = 300  # characters of the last line on standard error

_one_at_a_time = threading.Lock()

NO_LIBRARY = "pictures need the package kaleido, which is not installed: pip install kaleido"
NO_BROWSER = (
    "pictures need Chrome, Chromium or Edge on this machine, and none was found; install one, or run "
    "`choreo_get_chrome`. Figures of the HTML report can be saved as PNG and SVG without it"
)


def picture(
    figure: go.Figure,
    form: str,
    *,
    dark: bool = False,
    scale: float = SCALE,
    limit: float = LIMIT_SECONDS,
) -> bytes:
    """Return the figure as a PNG or SVG file, on a light or dark ground.

    Args:
      form: `png` or `svg`.
      scale: pixels of a PNG per pixel of the figure.
      limit: seconds to wait for another picture, and seconds to draw this one.

    Raises:
      InvalidInput: the format is unknown, there is no browser, or it exceeded the limit.
    """
    if form not in FORMATS:
        raise InvalidInput(f"form is {shown(form)}, but must be {' or '.join(FORMATS)}")
    missing = why_none()
    if missing is not None:
        raise InvalidInput(missing)
    wanted = json.dumps(
        {
            "figure": json.loads(to_json_plotly(stamp.on_ground(figure, dark=dark), engine="json")),
            "format": form,
            "scale": scale if form == "png" else 1,
            "limit": limit,
        }
    )
    if not _one_at_a_time.acquire(timeout=limit):
        raise InvalidInput(f"waited {limit:.0f} seconds for another picture to be drawn; try again")
    try:
        # A browser that was killed leaves its profile in this folder.
        with tempfile.TemporaryDirectory(prefix="picture-", ignore_cleanup_errors=True) as folder:
            return _drawn(wanted, limit, folder)
    finally:
        _one_at_a_time.release()


def why_none() -> str | None:
    """Return the reason why this machine cannot draw pictures; None if it probably can."""
    if importlib.util.find_spec("kaleido") is None:
        return NO_LIBRARY
    return None if Path(_browser()).is_file() else NO_BROWSER


def _browser() -> str:
    """Return the path of a browser; empty if none is found.

    A Chrome that Choreographer downloaded comes first, then `BROWSER_PATH`, then installed browsers.
    """
    # Imported late, so that pages without pictures do not wait for it.
    from choreographer.browsers import Chromium

    # Kaleido does not look for Debian's Chromium without windows, the smallest one for a server.
    return Chromium.find_browser(skip_local=False) or shutil.which("chromium-headless-shell") or ""


def _drawn(wanted: str, limit: float, folder: str) -> bytes:
    process = subprocess.Popen(
        start.command(picture_process.__name__),
        env=start.variables() | {"TMPDIR": folder, "BROWSER_PATH": _browser()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C for the server does not reach a new session, which can be killed as a group.
        start_new_session=True,
    )
    try:
        content, errors = process.communicate(wanted.encode(), timeout=limit)
    except subprocess.TimeoutExpired:
        raise InvalidInput(f"the picture was not drawn within {limit:.0f} seconds; try again") from None
    finally:
        if process.poll() is None:
            _end(process)
    if process.returncode == picture_process.NO_BROWSER:
        raise InvalidInput(NO_BROWSER)
    if process.returncode or not content:
        lines = errors.decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "unknown reason")
        raise InvalidInput(f"the picture could not be drawn: {' '.join(last.split())[:_LAST_WORDS]}")
    return content


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its browser, which belongs to its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
