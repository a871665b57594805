"""Run a command of the command line in this process."""

from __future__ import annotations

import contextlib
import io
import subprocess

from inspector.media.terminal import main


def inspector(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what a process of its own would: exit status, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = ended.code
    assert isinstance(status, int)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())
