"""Jobs of several owners: their number, cancels, and sessions that end."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from benchmarks.processes import PATIENCE, until
from inspector.jobs.engine import Environment, Pool, Requester
from inspector.jobs.engine.pool import Event
from inspector.text.errors import InvalidInput

ONE = Environment(1)
ANN, BEN = Requester("ann", "Ann", "tab 1"), Requester("ben", "Ben", "tab 2")


@contextmanager
def owned(workers: int = 1, most: int | None = None):
    """A pool, and the events that it reports."""
    events: list[Event] = []
    jobs = "tests.jobs.engine.jobs"
    with Pool(workers, jobs=jobs, most=most, on_event=events.append) as pool:
        yield pool, events


def blocked(pool, tmp_path, name, requester):
    """Submit a job that runs until the returned file exists."""
    door = tmp_path / f"{name}.open"
    payload = {"open": str(door), "count": str(tmp_path / f"{name}.count")}
    return pool.submit("gate", payload, ONE, requester=requester), door


def test_jobs_begin_in_the_order_in_which_they_were_asked(tmp_path):
    with owned() as (pool, _):
        jobs = [blocked(pool, tmp_path, str(n), owner) for n, owner in enumerate((ANN, ANN, BEN, ANN, BEN))]
        assert [job.status().place for job, _ in jobs] == [None, 1, 2, 3, 4]
        listed = pool.jobs()
        assert [job.status.place for job in listed] == [None, 1, 2, 3, 4]
        assert len(listed[0].pids) == 1 and listed[1].pids == ()
        assert [job.belongs_to("ben") for job in listed] == [False, False, True, False, True]
        jobs[0][1].touch()
        until(lambda: jobs[1][0].state == "running")
        assert jobs[2][0].status().place == 1


def test_an_owner_with_the_most_jobs_does_not_stop_another(tmp_path):
    with owned(most=2) as (pool, events):
        first, _ = blocked(pool, tmp_path, "1", ANN)
        second, _ = blocked(pool, tmp_path, "2", ANN)
        with pytest.raises(InvalidInput, match="2 jobs of yours"):
            blocked(pool, tmp_path, "3", ANN)
        blocked(pool, tmp_path, "2", ANN)  # an equal request needs no other place
        blocked(pool, tmp_path, "4", BEN)
        assert [event.event for event in events] == ["start", "refuse"]
        assert [event.requester for event in events] == [ANN, ANN]
        first.cancel()
        until(lambda: second.state == "running")
        blocked(pool, tmp_path, "3", ANN)
        assert len(pool.jobs()) == 3


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
