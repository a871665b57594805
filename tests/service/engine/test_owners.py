"""Jobs of several owners: turns, limits, cancels, sessions that end, and the end of a server."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from benchmarks.processes import PATIENCE, until
from inspector.core.errors import InvalidInput
from inspector.service.engine import Environment, Limits, Pool, Requester
from inspector.service.engine.pool import Event

ONE = Environment(1)
ANN, BEN = Requester("ann", "Ann", "tab 1"), Requester("ben", "Ben", "tab 2")


@contextmanager
def owned(workers: int = 1, **limits: int):
    """A pool with limits, and the events that it reports."""
    events: list[Event] = []
    jobs = "tests.service.engine.jobs"
    with Pool(workers, jobs=jobs, limits=Limits(**limits), on_event=events.append) as pool:
        yield pool, events


def blocked(pool, tmp_path, name, requester):
    """Submit a job that runs until the returned file exists."""
    door = tmp_path / f"{name}.open"
    payload = {"open": str(door), "count": str(tmp_path / f"{name}.count")}
    return pool.submit("gate", payload, ONE, requester=requester), door


def test_owners_take_turns(tmp_path):
    with owned() as (pool, _):
        anns = [blocked(pool, tmp_path, f"ann{n}", ANN) for n in range(4)]
        bens = [blocked(pool, tmp_path, f"ben{n}", BEN) for n in range(2)]
        places = [job.status().place for job, _ in (*anns, *bens)]
        assert places == [None, 2, 4, 5, 1, 3]
        listed = pool.jobs()
        assert [job.status.place for job in listed] == [None, 1, 2, 3, 4, 5]
        assert len(listed[0].pids) == 1 and listed[1].pids == ()
        assert [job.belongs_to("ben") for job in listed] == [False, True, False, True, False, False]
        anns[0][1].touch()
        until(lambda: bens[0][0].state == "running")
        assert anns[1][0].status().place == 1


def test_limits_of_one_owner_do_not_stop_another(tmp_path):
    with owned(workers=2, running=1, queued=1) as (pool, events):
        first, _ = blocked(pool, tmp_path, "1", ANN)
        second, _ = blocked(pool, tmp_path, "2", ANN)
        assert (first.state, second.state) == ("running", "queued"), "a worker is free"
        with pytest.raises(InvalidInput, match="1 job of yours"):
            blocked(pool, tmp_path, "3", ANN)
        blocked(pool, tmp_path, "2", ANN)  # an equal request needs no other place
        other, _ = blocked(pool, tmp_path, "4", BEN)
        assert other.state == "running"
        assert [event.event for event in events] == ["start", "refuse", "start"]
        assert [event.requester for event in events] == [ANN, ANN, BEN]
        first.cancel()
        until(lambda: second.state == "running")


def test_only_the_owner_cancels(tmp_path):
    with owned() as (pool, events):
        anns, _ = blocked(pool, tmp_path, "1", ANN)
        (listed,) = pool.jobs()
        with pytest.raises(InvalidInput, match="Ann"):
            pool.cancel(listed.number, "ben")
        assert anns.state == "running"
        shared, door = blocked(pool, tmp_path, "1", BEN)
        pool.cancel(listed.number, "ann")
        assert (anns.state, shared.state) == ("cancelled", "running")
        door.touch()
        assert shared.wait(PATIENCE).state == "done"
        with pytest.raises(InvalidInput, match="has ended"):
            pool.cancel(listed.number, "ann")
        ends = [(event.event, event.requester.owner, event.outcome) for event in events[-2:]]
        assert ends == [("cancel", "ann", "cancelled"), ("end", "ben", "done")]
        assert events[-1].seconds is not None and events[-1].seconds > 0


def test_jobs_of_a_session_that_ended_are_cancelled(tmp_path):
    with owned() as (pool, _):
        anns, _ = blocked(pool, tmp_path, "1", ANN)
        waiting, _ = blocked(pool, tmp_path, "2", ANN)
        bens, _ = blocked(pool, tmp_path, "3", BEN)
        assert pool.sessions() == {"tab 1", "tab 2"}
        pool.leave("tab 1")
        assert (anns.state, waiting.state) == ("cancelled", "cancelled")
        until(lambda: bens.state == "running")
        assert pool.sessions() == {"tab 2"}


def test_a_draining_pool_finishes_what_runs(tmp_path):
    with owned() as (pool, _):
        running, door = blocked(pool, tmp_path, "1", ANN)
        waiting, _ = blocked(pool, tmp_path, "2", BEN)
        assert not pool.drain(0.05)
        assert (running.state, waiting.state) == ("running", "cancelled")
        with pytest.raises(InvalidInput, match="shutting down"):
            pool.submit("echo", {}, ONE, requester=BEN)
        door.touch()
        assert pool.drain(PATIENCE)
        assert running.state == "done"
