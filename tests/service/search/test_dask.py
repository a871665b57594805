"""A search on a Dask cluster of this machine: the same result, and lost workers and schedulers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.machines.hardware import CHIPS
from inspector.search.result import SearchResult
from inspector.search.space import Space, space_of
from inspector.service.compile_cache import CompileCache
from inspector.service.search import executors, task
from inspector.service.search.run import Search
from tests.paths import ROOT

pytest.importorskip("distributed", reason="dask.distributed is optional: requirements-dask.txt")


@dataclass
class Cluster:
    """Processes of one scheduler and its workers."""

    scheduler: subprocess.Popen
    address: str
    workers: list[subprocess.Popen]
    folder: Path

    def start_worker(self) -> None:
        command = ("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
        self.workers.append(_dask(self.folder, *command)[0])


def _dask(folder: Path, *arguments: str) -> tuple[subprocess.Popen, Path]:
    log = folder / f"{arguments[0]}_{time.monotonic_ns()}.log"
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    return process, log


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    scheduler, log = _dask(
        tmp_path, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"
    )
    until = time.monotonic() + 60
    while (found := re.search(r"tcp://127\.0\.0\.1:\d+", log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    made = Cluster(scheduler, found[0], [], tmp_path)
    made.start_worker()
    yield made
    for process in (*made.workers, scheduler):
        _end(process)


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def space(service) -> Space:
    layout = layouts.parse({"mesh": "4", "axes": "data", "depth": "32", "layers": "1"}).unwrap()
    return space_of(layout, service.start_state(layout).wait().answer())


def search(space: Space, store: Path, address: str | None, on_progress=None) -> SearchResult:
    with executors.local(1) if address is None else executors.dask(address) as executor:
        kept = CompileCache(store / "search.sqlite3")
        return Search(
            space, CHIPS["v5e"], executor, 0, store=kept, on_progress=on_progress, workers=2
        ).run()


def costs(found: SearchResult) -> list[object]:
    return [(one.layout, one.seconds) for one in found.candidates]


def test_a_cluster_gives_the_result_of_this_machine_also_if_a_worker_is_killed(
    space, cluster, tmp_path, monkeypatch
):
    here = search(space, tmp_path / "here", None)
    task.close()
    killed = []

    def kill(progress) -> None:
        if progress.done and not killed:
            killed.append(cluster.workers[0])
            cluster.start_worker()
            _end(cluster.workers[0])

    there = search(space, tmp_path / "there", cluster.address, kill)
    assert killed and costs(there) == costs(here)
    for process in cluster.workers:
        _end(process)
    monkeypatch.setattr(executors, "NO_WORKER_SECONDS", 0.0)
    with pytest.raises(InvalidInput, match="no workers"):
        search(space, tmp_path / "alone", cluster.address)


def test_a_killed_scheduler_ends_the_search_with_a_sentence_and_it_continues(
    space, cluster, tmp_path, capfd
):
    def kill(progress) -> None:
        if progress.done:
            _end(cluster.scheduler)

    with pytest.raises(InvalidInput, match="continues"):
        search(space, tmp_path, cluster.address, kill)
    assert "Traceback" not in capfd.readouterr().err
    assert CompileCache(tmp_path / "search.sqlite3").usage().count
    with pytest.raises(InvalidInput, match="--dask"):
        search(space, tmp_path, cluster.address)
    whole = search(space, tmp_path, None)
    task.close()
    assert whole.counts.propagated


def test_an_address_without_a_scheduler_is_refused():
    with (
        pytest.raises(InvalidInput, match=r"no Dask scheduler"),
        executors.dask("tcp://127.0.0.1:1"),
    ):
        pass
