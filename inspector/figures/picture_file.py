"""A figure as a PNG or SVG file, drawn by a browser of this machine in a process of its own.

One picture at a time. The process lives for one picture and has a time limit, after which it is ended with
all that it started, so that a browser that hangs holds up nobody.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from inspector.core.errors import InvalidInput, shown
from inspector.figures import picture_process, stamp

FORMATS = {"png": "image/png", "svg": "image/svg+xml"}
SCALE = 2  # pixels of a PNG a pixel of the figure, for slides and sharp screens
LIMIT_SECONDS = 45.0  # a picture takes two; a machine that is busy gets time
_LAST_WORDS = 300  # characters of what the process said last

_one_at_a_time = threading.Lock()

NO_LIBRARY = "no picture can be drawn: install kaleido, as requirements.txt names it"
NO_BROWSER = (
    "no picture can be drawn: it takes Chrome, Chromium or Edge on this machine, and none was found; install "
    "one, or run `choreo_get_chrome`. Every figure of the HTML report can be saved as PNG and SVG without it"
)


def picture(
    figure: go.Figure,
    form: str,
    *,
    dark: bool = False,
    scale: float = SCALE,
    limit: float = LIMIT_SECONDS,
) -> bytes:
    """The figure as a PNG or SVG file, on a light or dark ground.

    Args:
      form: `png` or `svg`.
      scale: pixels of a PNG for each pixel of the figure.
      limit: seconds, with those waited for another picture.

    Raises:
      InvalidInput: the format is another, there is no browser, or it did not draw in time.
    """
    if form not in FORMATS:
        raise InvalidInput(
            f"the format of a picture is {shown(form)}, but must be {' or '.join(FORMATS)}"
        )
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
        raise InvalidInput(
            f"another picture is being drawn, for {limit:.0f} seconds now: try again"
        )
    try:
        # What a browser that had to be ended leaves of its profile goes with this folder.
        with tempfile.TemporaryDirectory(prefix="picture-", ignore_cleanup_errors=True) as folder:
            return _drawn(wanted, limit, folder)
    finally:
        _one_at_a_time.release()


def why_none() -> str | None:
    """Why no picture can be drawn on this machine, in a sentence; None if it can be tried."""
    if importlib.util.find_spec("kaleido") is None:
        return NO_LIBRARY
    # Not on top: a page that draws no picture need not wait for it.
    from choreographer.browsers import Chromium

    found = Chromium.find_browser(skip_local=False)
    return None if found and Path(found).is_file() else NO_BROWSER


def _drawn(wanted: str, limit: float, folder: str) -> bytes:
    process = subprocess.Popen(
        [sys.executable, "-m", picture_process.__name__],
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"TMPDIR": folder},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A Ctrl-C meant for the server must not reach it, and it can be ended with what it started.
        start_new_session=True,
    )
    try:
        content, said = process.communicate(wanted.encode(), timeout=limit)
    except subprocess.TimeoutExpired:
        raise InvalidInput(
            f"the picture was not drawn within {limit:.0f} seconds: try again"
        ) from None
    finally:
        if process.poll() is None:
            _end(process)
    if process.returncode == picture_process.NO_BROWSER:
        raise InvalidInput(NO_BROWSER)
    if process.returncode or not content:
        words = said.decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(words) if line.strip()), "it did not say why")
        raise InvalidInput(
            f"the picture could not be drawn: {' '.join(last.split())[:_LAST_WORDS]}"
        )
    return content


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and its browser, which is of its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
