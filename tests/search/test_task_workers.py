"""The worker processes of search tasks: those of a server while it has any, otherwise their own."""

from __future__ import annotations

from contextlib import closing

import pytest

from benchmarks.processes import until
from inspector import layout as layouts
from inspector.jobs import lanes
from inspector.machines import targets
from inspector.search import tasks
from inspector.text.errors import InvalidInput

LAYOUT = layouts.parse({"mesh": "2x1", "depth": "64", "layers": "1"}).unwrap().to_json()


def test_tasks_run_on_the_workers_of_a_server_until_it_stops_them(monkeypatch):
    monkeypatch.setattr(tasks, "_shared", None)
    monkeypatch.setattr(tasks, "_own", None)
    try:
        with closing(lanes.pool()) as pool:
            tasks.share(pool)
            (found,) = tasks.run("partition", [LAYOUT], "v5e")
            of_server = {worker.pid for worker in pool.workers(lanes.CANDIDATES)}
            assert {worker.pid for worker in tasks.workers()} == of_server != set()
            tasks.close()
            assert {worker.pid for worker in pool.workers(lanes.CANDIDATES)} == of_server
        assert tasks.workers() == ()
        assert tasks.run("partition", [LAYOUT], "v5e") == [found]
        assert len(tasks.workers()) == 1
    finally:
        tasks.close()


def test_a_cancelled_task_cancels_its_job_and_a_refused_one_says_why(monkeypatch):
    with closing(lanes.pool()) as pool:
        monkeypatch.setattr(tasks, "_shared", pool)
        local = tasks.LocalExecutor()
        future = local.submit(tasks.run, "partition", [LAYOUT], "v5e")
        assert future.cancel()
        until(lambda: not any(worker.busy for worker in pool.workers()), "the end of its job")
        monkeypatch.setattr(targets, "_COMPILERS", {"gpu": ("no_such_package", "cuda13-local")})
        refused = local.submit(tasks.run, "compile", [LAYOUT | {"target": "gpu:h100:2"}], "h100")
        with pytest.raises(InvalidInput, match="pip install"):
            refused.result(0)
