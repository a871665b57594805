"""The list of all jobs: whose they are, their place, and the memory of their workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.processes import PATIENCE, until
from inspector import layout as layouts
from inspector.jobs import host_memory
from inspector.jobs.engine import Requester
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import digest
from inspector.text.errors import InvalidInput

ANN, BEN = Requester("ann", "Ann", "tab 1"), Requester("ben", "Ben", "tab 2")
ENDLESS = {"mesh": "2x1", "steps": "10000", "depth": "512", "layers": "1"}


def test_resident_bytes_are_those_of_the_system() -> None:
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    own = int(line.split()[1]) * 1024
    resident = host_memory.resident_bytes(os.getpid())
    assert resident is not None and 0.8 * own < resident
    assert host_memory.resident_bytes(2**30) is None


def test_jobs_of_two_users() -> None:
    service = Inspection(run_workers=1)
    try:
        layout, other = (layouts.parse(ENDLESS | {"batch": n}).unwrap() for n in ("64", "128"))
        planned = [service.plan(one) for one in (layout, other)]
        ann, ben = service.of(ANN), service.of(BEN)
        first = ann.run(layout, planned[0]).start()
        until(lambda: first.status().phase not in (None, "start"), "the run's first report")
        second = ben.run(other, planned[1]).start()
        running, waiting = service.pool.jobs()
        assert (running.belongs_to("ben"), waiting.belongs_to("ben")) == (False, True)
        assert (running.status.place, waiting.status.place) == (None, 1)
        (pid,) = running.pids
        assert (host_memory.resident_bytes(pid) or 0) > 50 * 2**20
        assert (waiting.pids, waiting.status.phase) == ((), None)
        assert (running.subject.layout, running.subject.target) == (digest(layout), "cpu")
        assert running.age >= waiting.age > 0
        with pytest.raises(InvalidInput, match="belongs to Ann"):
            ben.cancel(running.number)
        assert first.state == "running"
        ann.cancel(running.number)
        assert first.wait(PATIENCE).state == "cancelled"
        service.pool.leave("tab 2")
        assert second.wait(PATIENCE).state == "cancelled"
        assert service.pool.sessions() == set() and service.pool.jobs() == ()
        with pytest.raises(InvalidInput, match="has ended"):
            ben.cancel(running.number)
        assert service.is_ready(), "the worker that planned has answered"
    finally:
        service.close()
