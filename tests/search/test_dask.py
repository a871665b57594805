"""A search on a Dask cluster of this machine: the same result, and lost workers and schedulers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.dask_cluster import Cluster
from inspector import layout as layouts
from inspector.jobs.compile_cache import CompileCache
from inspector.machines.hardware import CHIPS
from inspector.search import tasks
from inspector.search.result import SearchResult
from inspector.search.run import Search
from inspector.search.space import Space, space_of
from inspector.text.errors import InvalidInput

pytest.importorskip("distributed", reason="dask.distributed is optional: the extra dask")


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def space(service) -> Space:
    layout = layouts.parse({"mesh": "4", "axes": "data", "depth": "32", "layers": "1"}).unwrap()
    return space_of(layout, service.state(layout).answer())


def search(space: Space, store: Path, address: str | None, on_progress=None) -> SearchResult:
    with tasks.local(1) if address is None else tasks.dask(address) as executor:
        kept = CompileCache(store / "search.sqlite3")
        return Search(space, CHIPS["v5e"], executor, 0, store=kept, on_progress=on_progress, workers=2).run()


def costs(result: SearchResult) -> list[object]:
    return [(candidate.layout, candidate.seconds) for candidate in result.candidates]


@pytest.mark.nightly
def test_a_cluster_gives_the_result_of_this_machine_also_if_a_worker_is_killed(
    space, cluster, tmp_path, monkeypatch
):
    here = search(space, tmp_path / "here", None)
    tasks.close()
    killed = []

    def kill(progress) -> None:
        if progress.done and not killed:
            killed.append(cluster.workers[0])
            cluster.start_worker()
            cluster.end(cluster.workers[0])

    there = search(space, tmp_path / "there", cluster.address, kill)
    assert killed and costs(there) == costs(here)
    for process in tuple(cluster.workers):
        cluster.end(process)
    monkeypatch.setattr(tasks, "NO_WORKER_SECONDS", 0.0)
    with pytest.raises(InvalidInput, match="no workers"):
        search(space, tmp_path / "alone", cluster.address)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a scheduler that does not answer for a second or two instead of five."""
    monkeypatch.setattr(tasks, "RECONNECT_SECONDS", 1.0)
    monkeypatch.setattr(tasks, "_CONNECT_SECONDS", 2)


@pytest.mark.nightly
@pytest.mark.usefixtures("_impatient")
def test_a_killed_scheduler_ends_the_search_with_a_sentence_and_it_continues(space, cluster, tmp_path, capfd):
    def kill(progress) -> None:
        if progress.done:
            cluster.end(cluster.scheduler)

    with pytest.raises(InvalidInput, match="continues"):
        search(space, tmp_path, cluster.address, kill)
    assert "Traceback" not in capfd.readouterr().err
    assert CompileCache(tmp_path / "search.sqlite3").usage().count
    with pytest.raises(InvalidInput, match="--dask"):
        search(space, tmp_path, cluster.address)
    whole = search(space, tmp_path, None)
    tasks.close()
    assert whole.counts.partitioned


@pytest.mark.usefixtures("_impatient")
def test_an_address_without_a_scheduler_is_refused():
    with (
        pytest.raises(InvalidInput, match=r"--dask is"),
        tasks.dask("tcp://127.0.0.1:1"),
    ):
        pass
