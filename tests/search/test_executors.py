"""Tasks that a Dask scheduler has lost end, also if the client has reconnected to another scheduler."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from types import SimpleNamespace

import pytest

from inspector.search.tasks import ClusterExecutor


class Silent(Executor):
    """Its futures end only if the test ends them, like those of a lost scheduler."""

    def __init__(self) -> None:
        self.futures: list[Future] = []

    def submit(self, function, /, *arguments, **settings) -> Future:
        self.futures.append(Future())
        return self.futures[-1]


def test_tasks_of_a_lost_scheduler_end_and_later_ones_go_on() -> None:
    inner = Silent()
    client = SimpleNamespace(
        status="running", scheduler_comm="first", scheduler_info=lambda: {"workers": {"one": {}}}
    )
    cluster = ClusterExecutor(inner, client)
    done, lost = cluster.submit(print), cluster.submit(print)
    inner.futures[0].set_result(1)
    assert cluster.problem() is None and done.result(0) == 1 and not lost.done()
    client.status, client.scheduler_comm = "connecting", None
    later = cluster.submit(print)
    assert cluster.problem() is None and not lost.done()
    client.status, client.scheduler_comm = "running", "second"
    assert cluster.problem() is None
    with pytest.raises(ConnectionError):
        lost.result(0)
    assert cluster.problem() is None and not later.done()
    inner.futures[1].set_result("too late")
    inner.futures[2].set_exception(KeyError("of the task"))
    with pytest.raises(KeyError):
        later.result(0)
    cancelled = cluster.submit(print)
    assert cancelled.cancel() and inner.futures[3].cancelled()
