"""The process that draws one figure, `python -m inspector.figures.picture_process`; picture_file starts it.

It reads one JSON object from standard input, with `figure`, `format`, `scale` and `limit`, and writes the
picture to standard output. Kaleido draws it with a Chrome or Chromium of this machine. Nothing is fetched:
Plotly's script is the one that is installed here, and MathJax, which Kaleido would fetch, is left out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

NO_BROWSER = 3  # exit status


def main() -> int:
    """Draw, and give the exit status."""
    # What libraries print must not get among the picture's bytes.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import kaleido
    from choreographer.browsers import Chromium
    from kaleido.errors import ChromeNotFoundError

    class SameGroup(Chromium):
        """A browser that is ended with this process's group, instead of leading one of its own."""

        def get_popen_args(self) -> dict[str, Any]:
            return {**super().get_popen_args(), "start_new_session": False}

    wanted = json.load(sys.stdin)
    # Whoever started this ends it in time; should that be killed before, it ends itself.
    clock = threading.Timer(wanted["limit"] + 5, _end_all)
    clock.daemon = True
    clock.start()
    try:
        content = kaleido.calc_fig_sync(
            wanted["figure"],
            opts={"format": wanted["format"], "scale": wanted["scale"]},
            kopts={
                "mathjax": False,
                "timeout": None,  # whoever started this has the clock
                "browser_cls": SameGroup,
            },
        )
    except ChromeNotFoundError:
        return NO_BROWSER
    with answer:
        answer.write(content)
    return 0


def _end_all() -> None:
    """End this process, and the browser with it."""
    if os.name != "nt" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
