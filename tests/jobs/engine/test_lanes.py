"""Lanes of a pool, which do not wait for each other, and payloads that are tried after a failure."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest

from benchmarks.processes import PATIENCE, until
from inspector.jobs.engine import Environment, Lane, Pool, Requester
from inspector.jobs.engine.pool import Event
from inspector.text.errors import InvalidInput

ONE, TWO = Environment(1), Environment(2)
ANN = Requester("ann", "Ann", "tab 1")
TABLE = "tests.jobs.engine.jobs"


@contextmanager
def laned(workers: int, most: int | None = None, **lanes: Lane):
    """A pool with lanes, and the events that it reports."""
    events: list[Event] = []
    with Pool(workers, lanes=lanes, jobs=TABLE, most=most, on_event=events.append) as pool:
        yield pool, events


def blocked(pool, tmp_path, lane, name, environment=ONE, requester=ANN):
    """Submit a job that runs until the returned file exists."""
    door = tmp_path / f"{lane}-{name}.open"
    payload = {"open": str(door), "count": f"{door}.count"}
    return pool.submit("gate", payload, environment, requester=requester, lane=lane), door


def test_a_lane_waits_for_itself_only(tmp_path):
    with laned(2, runs=Lane(1), files=Lane(1)) as (pool, _):
        first, door = blocked(pool, tmp_path, "runs", 1)
        second, _ = blocked(pool, tmp_path, "runs", 2)
        file, _ = blocked(pool, tmp_path, "files", 1)
        assert [job.state for job in (first, second, file)] == ["running", "queued", "running"]
        assert [(job.lane, job.status.place) for job in pool.jobs()] == [
            ("runs", None), ("runs", 1), ("files", None),
        ]  # fmt: skip
        door.touch()
        until(lambda: second.state == "running")


def test_no_more_workers_than_the_pool_has_whatever_the_lanes_allow(tmp_path):
    with laned(3, plans=Lane(2, kept=1), runs=Lane(3), search=Lane(3)) as (pool, _):
        jobs = [blocked(pool, tmp_path, lane, n) for n in range(3) for lane in ("runs", "search")]
        states = Counter(job.state for job, _ in jobs)
        assert states == {"running": 2, "queued": 4}, "the third worker is kept for plans"
        plan, opened = blocked(pool, tmp_path, "plans", 1)
        assert plan.state == "running" and len(pool.workers()) == 3
        opened.touch()
        assert plan.wait(PATIENCE).state == "done"
        for _, door in jobs:
            door.touch()
        for job, _ in jobs:
            assert job.wait(PATIENCE).state == "done"
        assert len(pool.workers()) <= 3


def test_an_idle_worker_of_another_lane_makes_room_but_a_kept_one_stays(tmp_path):
    with laned(2, plans=Lane(2, kept=1), runs=Lane(2)) as (pool, _):
        for lane in ("plans", "runs"):
            pool.submit("echo", {}, ONE, lane=lane).wait(PATIENCE)
        (kept,) = pool.workers("plans")
        run, _ = blocked(pool, tmp_path, "runs", 1, TWO)
        until(lambda: run.state == "running")
        assert [worker.pid for worker in pool.workers("plans")] == [kept.pid]
        (worker,) = pool.workers("runs")
        assert worker.environment == TWO


def test_idle_workers_of_a_lane_that_keeps_none_are_stopped():
    lanes = {"plans": Lane(1, kept=1), "runs": Lane(1)}
    with Pool(2, lanes=lanes, jobs=TABLE, idle=0.1) as pool:
        for lane in lanes:
            pool.submit("echo", {}, ONE, lane=lane).wait(PATIENCE)
        until(lambda: not pool.workers("runs"))
        assert len(pool.workers("plans")) == 1


def test_the_most_jobs_are_those_of_a_lane_and_unlisted_lanes_are_not_reported(tmp_path):
    with laned(3, 2, runs=Lane(1), files=Lane(1), plans=Lane(1, listed=False)) as (pool, events):
        for name in (1, 2):
            for one in ("runs", "files", "plans"):
                blocked(pool, tmp_path, one, name)
        with pytest.raises(InvalidInput, match="2 jobs of yours"):
            blocked(pool, tmp_path, "files", 3)
        blocked(pool, tmp_path, "plans", 3)
        assert [job.lane for job in pool.jobs()] == ["runs", "runs", "files", "files"]
        assert [event.event for event in events] == ["start", "start", "refuse"]


@pytest.mark.parametrize("failing", ["fail", "killed", "abort"])
def test_a_failed_job_is_tried_otherwise_once(failing):
    """`choose` runs the job that its payload names, so the second payload can be of another kind."""
    with Pool(1, jobs=TABLE) as pool:
        bad, good = {"job": failing}, {"job": "echo"}
        answer = pool.submit("choose", bad, ONE, otherwise=good).wait(PATIENCE)
        assert answer.state == "done" and answer.result["payload"] == good
        failed = pool.submit("choose", bad, ONE, otherwise={"job": "refuse"}).wait(PATIENCE)
        assert failed.state == "failed" and failed.error.startswith("`hidden`")
        alone = pool.submit("choose", bad, ONE).wait(PATIENCE)
        assert alone.state == "failed"


def test_a_cancelled_job_is_not_tried_otherwise():
    with Pool(1, jobs=TABLE) as pool:
        job = pool.submit("choose", {"job": "loop"}, ONE, otherwise={"job": "echo"})
        until(lambda: job.status().phase == "looping")
        job.cancel()
        assert job.wait(PATIENCE).state == "cancelled"
        until(lambda: not any(worker.busy for worker in pool.workers()))
        assert pool.jobs() == ()
