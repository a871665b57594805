"""However the server ends, no worker is left; and while it lives, it never imports JAX."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from benchmarks.processes import PATIENCE, alive, until
from inspector.jobs.engine.process import decode, encode
from tests.jobs.engine.starting import start_worker
from tests.paths import ROOT


def start(*arguments: str) -> subprocess.Popen:
    """A fresh interpreter that can import this project."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


LINUX = pytest.mark.skipif(
    sys.platform != "linux",
    reason="only Linux ends a process that keeps the interpreter's lock when a pipe closes",
)
ENDINGS = ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "return", "raise", "os._exit", "close", "fork"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", ["idle", "loop", "stubborn", pytest.param("stuck", marks=LINUX)])
def test_no_worker_outlives_the_server(kind, ending):
    server = start("-m", "tests.jobs.engine.server", kind, ending)
    try:
        line = server.stdout.readline()
        assert line, server.stderr.read()
        pids = json.loads(line)
        assert len(pids) == (1 if kind == "idle" else 2)
        assert all(alive(pid) for pid in pids), "or their end would prove nothing"
        if ending.startswith("SIG"):
            server.send_signal(getattr(signal, ending))
        else:
            server.stdin.write("\n")
            server.stdin.flush()
        for pid in pids:
            until(lambda pid=pid: not alive(pid), "the worker's end")
        code = server.wait(PATIENCE)
        if ending.startswith("SIG"):
            assert code == -getattr(signal, ending)
        else:
            assert code == (1 if ending == "raise" else 0)
    finally:
        server.kill()
        server.communicate()


def test_what_a_job_started_goes_with_a_killed_server():
    server = start("-m", "tests.jobs.engine.server", "spawn", "SIGKILL")
    try:
        pids = json.loads(server.stdout.readline())
        assert len(pids) == 3
        server.kill()
        for pid in pids:
            until(lambda pid=pid: not alive(pid), "the process's end")
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("closed", ["stdin", pytest.param("lifeline", marks=LINUX)])
def test_either_pipe_is_enough_to_end_a_worker(closed):
    theirs, lifeline = os.pipe()
    worker = start_worker(theirs, new_session=True)
    try:
        os.close(theirs)
        worker.stdin.write(encode("run", run=1, job="stubborn", payload={}, memory=None))
        worker.stdin.flush()
        assert decode(worker.stdout.readline()) == {"kind": "started", "run": 1}
        assert decode(worker.stdout.readline())["kind"] == "progress"
        if closed == "stdin":
            worker.stdin.close()
        else:
            os.close(lifeline)
        code = worker.wait(PATIENCE)
        assert code == -(signal.SIGKILL if closed == "stdin" else signal.SIGIO)
    finally:
        worker.kill()
        worker.wait()
        worker.stdin.close()
        worker.stdout.close()
        if closed == "stdin":
            os.close(lifeline)


USES_THE_ENGINE = """
import sys
from inspector.jobs.engine import Environment, Pool
with Pool(jobs="tests.jobs.engine.jobs") as pool:
    pool.warm(Environment(2))
    job = pool.submit("devices", {}, Environment(2)).wait(60)
    assert job.result["devices"] == 2, job.error
foreign = {"jax", "jaxlib", "flax", "numpy", "streamlit"} & set(sys.modules)
sys.exit(f"imported: {sorted(foreign)}" if foreign else 0)
"""


@pytest.mark.parametrize("also", ["", "import jax\n", "import streamlit\n"])
def test_the_server_does_not_import_jax(also):
    server = start("-c", also + USES_THE_ENGINE)
    _, stderr = server.communicate(timeout=PATIENCE)
    if also:
        assert server.returncode == 1, "the check must find the import"
        assert also.split()[1] in stderr
    else:
        assert (server.returncode, stderr) == (0, "")
