"""Draw one figure: the process that `picture_file` starts.

It reads one JSON object with `figure`, `format`, `scale` and `limit` from standard input, and writes the
picture to standard output. Kaleido draws it with a Chrome or Chromium of this machine. Nothing is
downloaded: the script of Plotly is the installed one, and MathJax is left out.
"""

import json
import os
import signal
import sys
import threading
from typing import Any

NO_BROWSER = 3  # exit status


def main() -> int:
    """Draw the figure and return the exit status."""
    # Standard output holds only the picture; what libraries print goes to standard error.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import kaleido
    from choreographer.browsers import Chromium
    from kaleido.errors import ChromeNotFoundError

    class SameGroup(Chromium):
        """A browser in the group of this process, so that both are killed together."""

        def get_popen_args(self) -> dict[str, Any]:
            return {**super().get_popen_args(), "start_new_session": False}

    request = json.load(sys.stdin)
    # The starting process kills this one in time. If it is gone, this process ends itself.
    clock = threading.Timer(request["limit"] + 5, _end_all)
    clock.daemon = True
    clock.start()
    try:
        content = kaleido.calc_fig_sync(
            request["figure"],
            opts={"format": request["format"], "scale": request["scale"]},
            kopts={
                "mathjax": False,
                "timeout": None,  # the starting process has the limit
                "browser_cls": SameGroup,
            },
        )
    except ChromeNotFoundError:
        return NO_BROWSER
    with output:
        output.write(content)
    return 0


def _end_all() -> None:
    """Kill this process and the browser."""
    if os.name != "nt" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
