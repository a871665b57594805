"""The worker processes of search tasks: those of a server while it has any, otherwise their own."""

from __future__ import annotations

from contextlib import closing

from inspector import layout as layouts
from inspector.service import lanes
from inspector.service.search import task

LAYOUT = layouts.parse({"mesh": "2x1", "depth": "64", "layers": "1"}).unwrap().to_json()


def test_tasks_run_on_the_workers_of_a_server_until_it_stops_them(monkeypatch):
    monkeypatch.setattr(task, "_shared", None)
    monkeypatch.setattr(task, "_own", None)
    try:
        with closing(lanes.pool()) as pool:
            task.share(pool)
            (found,) = task.propagate("search", [LAYOUT], "v5e")
            of_server = {worker.pid for worker in pool.workers(lanes.CANDIDATES)}
            assert {worker.pid for worker in task.workers()} == of_server != set()
            task.close()
            assert {worker.pid for worker in pool.workers(lanes.CANDIDATES)} == of_server
        assert task.workers() == ()
        assert task.propagate("search", [LAYOUT], "v5e") == [found]
        assert len(task.workers()) == 1
    finally:
        task.close()
