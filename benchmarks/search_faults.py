"""SIGKILL during a search: of a worker, of a Dask worker and of the Dask scheduler, in each phase.

In each trial a phase and a moment in it are drawn, and one process is killed there. The search must give the
result of an undisturbed search, or end with a sentence. The same search must then give that result, and
compute only what the first one had not stored. Takes about 20 minutes, so it runs only by its name.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.count import Count
from benchmarks.dask_cluster import Cluster
from inspector import layout as layouts
from inspector.jobs import compile_cache
from inspector.jobs.compile_cache import CompileCache
from inspector.jobs.inspection import Inspection
from inspector.machines import targets
from inspector.search import tasks
from inspector.search.result import SearchProgress, SearchResult
from inspector.search.run import Search
from inspector.search.space import Space, space_of
from inspector.text.errors import InvalidInput

KILLS = 30  # of each kind of process
BUDGET = 2  # compiles
FIELDS = {
    "mesh": "8", "axes": "data", "depth": "32", "layers": "1", "target": "gpu:h100:8",
}  # fmt: skip
Kill = Callable[[random.Random], None]


def report(cases: int | None = None) -> str:
    """Kill each kind of process `KILLS` times, and return how often the search survived."""
    kills = cases or KILLS
    target = targets.parse(FIELDS["target"])
    if (missing := targets.missing_compiler(target)) is not None:
        return f"search_faults: {missing}"
    layout = layouts.parse(FIELDS).unwrap()
    with contextlib.closing(Inspection(run_workers=1)) as service:
        space = space_of(layout, service.state(layout).answer())
    counts = [killed_workers(space, kills)]
    try:
        import distributed  # noqa: F401
    except ImportError:
        return "\n".join([counts[0].text(), "search_faults: dask.distributed is not installed"])
    counts += [killed_dask_workers(space, kills), killed_schedulers(space, kills)]
    return "\n".join(one.text() for one in counts)


class Trial:
    """One search that is disturbed, with stores of its own."""

    def __init__(self, space: Space, folder: Path) -> None:
        self.space = space
        self.folder = folder
        self.phases: dict[str, float] = {}  # when each began
        self.ended: float | None = None
        self.changed = threading.Event()
        self.submitted = 0  # tasks
        self._threads: list[threading.Thread] = []

    def run(self, executor: Executor) -> SearchResult:
        """Search. Raises InvalidInput if it ends with a sentence."""
        self.phases, self.ended, self.submitted = {}, None, 0
        machine = self.space.layout.machine
        assert machine is not None
        counting = executor
        if not isinstance(executor, tasks.ClusterExecutor):  # the search asks whether it is connected
            counting = _Counting(executor, self)
        try:
            return Search(
                self.space,
                machine.chip,
                counting,
                BUDGET,
                store=CompileCache(self.folder / "search.sqlite3"),
                on_progress=self._note,
                workers=2,
            ).run()
        finally:
            self.ended = time.monotonic()
            self.changed.set()

    def stored(self) -> int:
        """Return the number of stored answers."""
        return CompileCache(self.folder / "search.sqlite3").usage().count

    def disturb(self, phase: str, delay: float, kill: Callable[[], None]) -> threading.Thread:
        """Call `kill` once, `delay` seconds after the begin of a phase."""

        def wait() -> None:
            while phase not in self.phases and self.ended is None:
                self.changed.wait(0.005)
            time.sleep(delay)
            kill()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread

    def _note(self, progress: SearchProgress) -> None:
        self.phases.setdefault(progress.phase, time.monotonic())


class _Counting(Executor):
    def __init__(self, inner: Executor, trial: Trial) -> None:
        self._inner = inner
        self._trial = trial

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **settings: Any) -> Future[Any]:
        self._trial.submitted += 1
        return self._inner.submit(function, *arguments, **settings)


def killed_workers(space: Space, kills: int = KILLS, seed: int = 1) -> Count:
    """Kill worker processes of a search on this machine."""

    def kill(chosen: random.Random) -> None:
        busy = [one.pid for one in tasks.workers() if one.busy] or [one.pid for one in tasks.workers()]
        if busy:
            processes.kill(chosen.choice(busy))

    count = Count("search: a worker is killed")
    try:
        _trials(space, kills, seed, count, lambda folder: tasks.local(2), lambda _: kill)
    finally:
        tasks.close()
    return count


def killed_dask_workers(space: Space, kills: int = KILLS, seed: int = 2) -> Count:
    """Kill one of two Dask workers; another one is started."""
    count = Count("search: a Dask worker is killed")

    def killer(cluster: Cluster) -> Kill:
        def kill(chosen: random.Random) -> None:
            victim = chosen.choice(cluster.workers)
            cluster.start_worker()
            cluster.end(victim)

        return kill

    _cluster_trials(space, kills, seed, count, killer)
    return count


def killed_schedulers(space: Space, kills: int = KILLS, seed: int = 3) -> Count:
    """Kill the Dask scheduler; every second time it is started again at its address, with workers."""
    count = Count("search: a Dask scheduler is killed")
    restarts = iter(range(kills + 1))

    def killer(cluster: Cluster) -> Kill:
        def kill(chosen: random.Random) -> None:
            cluster.end(cluster.scheduler)
            if next(restarts) % 2:
                for worker in list(cluster.workers):
                    cluster.end(worker)
                cluster.start_scheduler()
                cluster.start_worker()
                cluster.start_worker()

        return kill

    _cluster_trials(space, kills, seed, count, killer)
    return count


def _cluster_trials(
    space: Space, kills: int, seed: int, count: Count, killer: Callable[[Cluster], Kill]
) -> None:
    clusters: list[Cluster] = []

    @contextlib.contextmanager
    def connected(folder: Path) -> Iterator[Executor]:
        cluster = Cluster(folder, workers=2)
        clusters.append(cluster)
        try:
            with tasks.dask(cluster.address) as executor:
                yield executor
        finally:
            cluster.close()

    _trials(space, kills, seed, count, connected, lambda _: killer(clusters[-1]))


def _trials(
    space: Space,
    kills: int,
    seed: int,
    count: Count,
    executor: Callable[[Path], AbstractContextManager[Executor]],
    killer: Callable[[Path], Kill],
) -> None:
    chosen = random.Random(seed)
    with _trial(space) as first, executor(first.folder) as running:
        expected = facts(first.run(running))
        names = list(first.phases)
        begins = [first.phases[name] for name in names]
        lengths = dict(zip(names, (b - a for a, b in itertools.pairwise(begins)), strict=False))
        whole = first.stored()
    count.notes.append("phases: " + ", ".join(f"{n} {s:.2f} s" for n, s in lengths.items()))
    messages = 0
    for number in range(kills):
        phase = list(lengths)[number % len(lengths)]
        delay = chosen.random() * lengths[phase]
        where = f"{number}, {delay:.2f} s after the begin of {phase}"
        with _trial(space) as trial, contextlib.ExitStack() as stack:
            problem = None
            try:
                running = stack.enter_context(executor(trial.folder))
                kill = killer(trial.folder)
                thread = trial.disturb(phase, delay, functools.partial(kill, chosen))
                try:
                    if facts(trial.run(running)) != expected:
                        problem = "the result differs"
                except InvalidInput as error:
                    messages += 1
                    if "\n" in str(error) or len(str(error)) > 400:
                        problem = f"the message is {str(error)!r}"
                thread.join(60)
            except Exception as error:  # what the check is to find
                problem = f"{type(error).__name__}: {error}"
            kept = trial.stored()
            stack.close()
            if problem is None:
                problem = _continued(trial, expected, kept, whole)
            count.check(problem, where)
            print(f"  {count.name} {where}: {problem or 'held'}", file=sys.stderr, flush=True)
    count.notes.append(f"{messages} ended with a sentence and continued, the others had the same result")


def _continued(trial: Trial, expected: object, kept: int, whole: int) -> str | None:
    """Search again on this machine. Return what is wrong with its result or with what it computed."""
    with tasks.local(2) as executor:
        if facts(trial.run(executor)) != expected:
            return "the next search has another result"
    if trial.submitted > max(whole - kept, 0):
        return f"the next search ran {trial.submitted} tasks, but {kept} of {whole} were stored"
    return None


def facts(found: SearchResult) -> object:
    """Return what is equal in each result of the same search."""
    return (
        [(str(one.layout), one.stage, one.seconds, one.fits) for one in found.candidates],
        found.best,
        found.finished,
    )


@contextlib.contextmanager
def _trial(space: Space) -> Iterator[Trial]:
    """Make a trial whose compile cache is empty, in this process and those that it starts."""
    before = os.environ.get(compile_cache.FOLDER_VARIABLE)
    folder = Path(tempfile.mkdtemp(prefix="search-faults-"))
    os.environ[compile_cache.FOLDER_VARIABLE] = str(folder)
    try:
        yield Trial(space, folder)
    finally:
        del os.environ[compile_cache.FOLDER_VARIABLE]
        if before is not None:
            os.environ[compile_cache.FOLDER_VARIABLE] = before
        shutil.rmtree(folder, ignore_errors=True)
