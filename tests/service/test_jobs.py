"""The list of all jobs: whose they are, their place, and the memory of their workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.processes import PATIENCE, until
from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.service import jobs
from inspector.service.engine import Limits, Requester
from inspector.service.inspection import Inspection
from inspector.service.search.registry import Searches
from inspector.service.subject import digest

ANN, BEN = Requester("ann", "Ann", "tab 1"), Requester("ben", "Ben", "tab 2")
ENDLESS = {"mesh": "2x1", "steps": "10000", "depth": "512", "layers": "1"}


def test_resident_bytes_are_those_of_the_system() -> None:
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    own = int(line.split()[1]) * 1024
    found = jobs.resident_bytes(os.getpid())
    assert found is not None and 0.8 * own < found
    assert jobs.resident_bytes(2**30) is None


def test_jobs_of_two_users() -> None:
    service, searches = Inspection(run_workers=1, limits=Limits(2, 2)), Searches()
    try:
        layout, other = (layouts.parse(ENDLESS | {"batch": n}).unwrap() for n in ("64", "128"))
        planned = [service.plan(one) for one in (layout, other)]
        ann, ben = service.of(ANN), service.of(BEN)
        first = ann.start_run(layout, planned[0])
        until(lambda: first.status().phase not in (None, "start"), "the run's first report")
        second = ben.start_run(other, planned[1])
        running, waiting = jobs.listed(ben, searches)
        assert (running.owned, waiting.owned) == (False, True)
        assert (running.place, waiting.place) == (None, 1)
        assert running.memory is not None and running.memory > 50 * 2**20
        assert (waiting.memory, waiting.phase) == (None, None)
        assert (running.subject.layout, running.subject.target) == (digest(layout), "cpu")
        assert running.age >= waiting.age > 0
        with pytest.raises(InvalidInput, match="belongs to Ann"):
            jobs.cancel(ben, searches, running.queue, running.number)
        assert first.state == "running"
        jobs.cancel(ann, searches, running.queue, running.number)
        assert first.wait(PATIENCE).state == "cancelled"
        service.pool.leave("tab 2")
        assert second.wait(PATIENCE).state == "cancelled"
        assert service.pool.sessions() == set() and jobs.listed(ben, searches) == ()
        with pytest.raises(InvalidInput, match="has ended"):
            jobs.cancel(ben, searches, jobs.SEARCHES, 1)
        assert service.is_ready(), "the worker that planned has answered"
    finally:
        service.close()
