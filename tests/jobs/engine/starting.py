"""Start a worker process."""

from __future__ import annotations

import os
import subprocess

from inspector.jobs import start
from tests.paths import ROOT


def start_worker(lifeline: int, *arguments: str, new_session: bool = False) -> subprocess.Popen:
    """Start a worker process of the test jobs, which holds one end of the lifeline pipe."""
    module = ("inspector.jobs.engine.worker", "tests.jobs.engine.jobs")
    return subprocess.Popen(
        start.command(*module, str(lifeline), *arguments),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(lifeline,),
        start_new_session=new_session,
    )
