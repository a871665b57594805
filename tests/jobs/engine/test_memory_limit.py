"""Workers that use too much memory end alone, with a sentence; others go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.processes import PATIENCE, alive, until
from inspector.jobs import host_memory
from inspector.jobs.engine import Environment, Pool, environment
from inspector.text.errors import InvalidInput

ONE = Environment(1)
MIB = 1024**2


@pytest.fixture
def small():
    """Two workers of at most 256 MiB. They import no JAX."""
    with Pool(workers=2, jobs="tests.jobs.engine.jobs", memory=256 * MIB) as pool:
        yield pool


@pytest.mark.parametrize("kind", ["grow", "grow_below"])
def test_a_worker_above_its_limit_ends_alone(small, kind):
    other = small.submit("gate", {"open": "/nonexistent/door", "count": os.devnull}, ONE)
    job = small.submit(kind, {"bytes": 2048 * MIB, "pause": 0.01}, ONE).wait(PATIENCE)
    assert job.state == "failed"
    assert "256 MiB" in job.error and environment.OPTION in job.error
    pid = job.status().progress["pid"]
    until(lambda: not alive(pid), "the end of the worker")
    assert other.state == "running"
    again = small.submit("grow", {"bytes": 16 * MIB}, ONE).wait(PATIENCE)
    assert again.state == "done" and again.result["pid"] != pid


def test_the_memory_of_a_worker_below_its_limit_is_its_own_affair(small):
    for _ in range(3):  # in the same worker, one after the other
        job = small.submit("grow", {"bytes": 160 * MIB, "pause": 0.03}, ONE).wait(PATIENCE)
        assert job.state == "done", job.error


def test_a_job_with_less_memory_is_refused_and_its_worker_goes_on(single):
    kept = single.submit("echo", {}, ONE).wait(PATIENCE).result["pid"]
    wanted = {"bytes": environment.WORKER + 512 * MIB}
    job = single.submit("grow", wanted, ONE, memory=128 * MIB).wait(PATIENCE)
    assert job.state == "failed" and job.status().details is None
    assert "128 MiB" in job.error and "growing" in job.error
    after = single.submit("grow", wanted, ONE).wait(PATIENCE)  # the limit was that of the job
    assert after.state == "done" and after.result["pid"] == kept


def test_a_process_below_a_job_with_less_memory_counts(single):
    wanted = {"bytes": environment.WORKER + 512 * MIB}
    job = single.submit("grow_below", wanted, ONE, memory=128 * MIB).wait(PATIENCE)
    assert job.state == "failed"


def test_the_kernel_ends_a_worker_before_the_server(single):
    pid = single.submit("echo", {}, ONE).wait(PATIENCE).result["pid"]
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"


def test_limit_of_a_worker(monkeypatch):
    monkeypatch.delenv(environment.VARIABLE, raising=False)
    share = environment.of_worker()
    assert share == max(environment.LEAST, int(host_memory.total_bytes() * environment.SHARE))
    monkeypatch.setenv(environment.VARIABLE, "3 GiB")
    assert environment.of_worker() == 3 * 1024**3
    assert environment.available_bytes() <= 3 * 1024**3


@pytest.mark.parametrize("text", ["", "much", "1", "-2 GiB", "10 MiB", "1e9", "9999999999 TiB", "½ GB"])
def test_a_limit_that_is_no_size_or_too_small(monkeypatch, text):
    monkeypatch.setenv(environment.VARIABLE, text)
    with pytest.raises(InvalidInput, match=environment.VARIABLE):
        Pool(workers=1)
