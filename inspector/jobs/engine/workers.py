"""The worker processes of a pool: which one runs a job, which one is stopped, and when."""

import itertools
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inspector.jobs.engine import process
from inspector.jobs.engine.environment import (
    CHECKS_PER_SECOND,
    WORKER,
    Environment,
    exceeded,
    exceeded_by_job,
    used_bytes,
)
from inspector.jobs.engine.job import Lane, Run
from inspector.jobs.engine.process import Process, process_name

TOPICS = 8  # that a worker is assumed to have in its caches

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class WorkerProcess:
    """A worker process and its run. Guarded by the pool's lock."""

    lane: str
    environment: Environment
    last_used: int  # a counter: the lowest is the least recently used
    process: Process = None  # type: ignore[assignment]  # set before the lock is released
    run: Run | None = None  # the run that it executes, even if no caller waits for it any more
    stopping: bool = False  # killed, but its end was not seen yet
    kill_at: float | None = None  # end of the grace after a cancel, on the monotonic clock
    unusable: str | None = None  # why JAX did not start in it
    used_before: int = 0  # bytes in memory when its run began; 0 if unknown
    answered: bool = False  # it has sent a message
    idle_since: float = field(default_factory=time.monotonic)  # its start, or the end of its last run
    topics: deque[str] = field(default_factory=lambda: deque(maxlen=TOPICS))  # of its last runs

    @property
    def is_busy(self) -> bool:
        """Whether it executes a run. Only then can it grow."""
        return self.run is not None and not self.stopping

    @property
    def is_idle(self) -> bool:
        return self.run is None and not self.stopping

    def due(self) -> float:
        """Return the monotonic time at which its run times out or it is killed; infinity for never."""
        if self.stopping:
            return math.inf
        if self.kill_at is not None:
            return self.kill_at
        if self.run is not None and not self.run.finished:
            return self.run.deadline
        return math.inf

    def explain_end(self, run: Run) -> str:
        """Return one sentence on why `run` failed when this worker's process ended."""
        if self.unusable is not None:
            return self.unusable
        processes = self.environment.processes
        if run.memory is not None and self.process.ran_out_of_memory():
            return exceeded_by_job(run.memory, run.phase)
        if run.memory is not None and self.process.crashed():  # only a job that parses has a limit
            return self.process.explain_unreadable(str(run.payload.get("name", "The input")), run.phase)
        if processes > 1:
            name = process_name(0, processes)
            return self.process.explain_end(name, run.phase, new="new ones")
        return self.process.explain_end(f"The worker with {self.environment}", run.phase)


@dataclass(frozen=True)
class WorkerStatus:
    """One worker at one moment. `answered` is whether it has sent a message, so that it is known to work."""

    pid: int
    environment: Environment
    busy: bool
    answered: bool = True


@dataclass(eq=False)
class Workers:
    """All worker processes of a pool, and the threads that watch their clock and memory.

    Guarded by `lock`, that of the pool.

    Attributes:
      most: processes at once.
      idle: seconds after which an idle worker is stopped, unless its lane keeps it.
      memory: bytes that each may use.
      start: starts the process of a worker.
      time_out: ends a run that took too long.
      fail: ends a run whose worker is stopped, with a sentence.
    """

    most: int
    lanes: Mapping[str, Lane]
    idle: float
    memory: int
    lock: threading.Condition
    start: Callable[[WorkerProcess], Process]
    time_out: Callable[[Run], None]
    fail: Callable[[Run, str], None]
    all: list[WorkerProcess] = field(default_factory=list)
    closed: bool = False
    uses: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _to_warm: list[tuple[str, Environment]] = field(default_factory=list)  # when there is room
    _watched: bool = False

    def watch(self) -> None:
        """Start the threads that watch the workers, if they do not run."""
        if not self._watched:
            self._watched = True
            for watch, name in ((self._watch_clock, "pool clock"), (self._watch_memory, "pool memory")):
                threading.Thread(target=watch, name=name, daemon=True).start()

    def status(self, lanes: Iterable[str]) -> tuple[WorkerStatus, ...]:
        """Return the workers of these lanes that are not being stopped; without lanes, those of all."""
        names = set(lanes) or set(self.lanes)
        return tuple(
            WorkerStatus(worker.process.pid, worker.environment, worker.run is not None, worker.answered)
            for worker in self.all
            if not worker.stopping and worker.lane in names
        )

    def close(self) -> list[WorkerProcess]:
        """Kill all workers, and return them."""
        self.closed = True
        self._to_warm.clear()
        for worker in self.all:
            self.stop(worker)
        return list(self.all)

    def stop(self, worker: WorkerProcess) -> None:
        """Kill a worker. It remains among all until its end is seen."""
        worker.stopping = True
        worker.kill_at = None
        worker.process.kill()

    def free(self, lane: str, environment: Environment, topic: str | None = None) -> WorkerProcess | None:
        """Return an idle worker of this lane for this environment, or None if there is none yet.

        A worker that has run a job of this topic is preferred, then the most recently used one.

        Start one if there is room. Otherwise stop the least recently used idle worker that makes room; its
        end makes the pool ask again. Raises OSError or ValueError if no process can be started.
        """
        idle = [worker for worker in self.all if worker.is_idle]
        fitting = [worker for worker in idle if (worker.lane, worker.environment) == (lane, environment)]
        if fitting:
            return max(fitting, key=lambda worker: (topic in worker.topics, worker.last_used))
        count = Counter(worker.lane for worker in self.all)
        full = count[lane] >= self.lanes[lane].workers
        promised = sum(max(0, other.kept - count[name]) for name, other in self.lanes.items() if name != lane)
        if not full and len(self.all) + promised < self.most:
            worker = WorkerProcess(lane, environment, last_used=next(self.uses))
            worker.process = self.start(worker)
            self.all.append(worker)
            return worker
        spare = [
            worker
            for worker in idle
            if worker.lane == lane or (not full and count[worker.lane] > self.lanes[worker.lane].kept)
        ]
        if spare and not any(worker.stopping for worker in self.all):
            self.stop(min(spare, key=lambda worker: worker.last_used))
        return None

    def warm(self, lane: str, environment: Environment) -> None:
        """Have a worker started when there is room. The oldest of too many requests are forgotten."""
        self._to_warm = [*self._to_warm, (lane, environment)][-self.most :]

    def start_warm(self, busy: Iterable[str]) -> None:
        """Start the workers that are to be warm. `busy` are the lanes with queued runs, which come first."""
        lanes = set(busy)
        while self._to_warm and self._to_warm[0][0] not in lanes:
            lane, environment = self._to_warm[0]
            if not any(
                (worker.lane, worker.environment) == (lane, environment) and not worker.stopping
                for worker in self.all
            ):
                try:
                    started = self.free(lane, environment)
                except (OSError, ValueError) as error:
                    _log.warning("A worker could not be started: %s.", error)
                    started = None
                if started is not None:
                    started.process.send(process.encode("warm", devices=environment.devices))
                elif any(worker.stopping for worker in self.all):
                    break  # room is being made
            self._to_warm.pop(0)

    def _watch_clock(self) -> None:
        """Act on timeouts, and stop workers that ignore a cancel or are idle."""
        with self.lock:
            while not self.closed:
                for worker in list(self.all):
                    if self._due(worker) <= time.monotonic():
                        if worker.kill_at is not None or worker.run is None:
                            self.stop(worker)
                        else:
                            self.time_out(worker.run)
                # Computed again, because other runs may have begun.
                due = min(map(self._due, self.all), default=math.inf)
                left = max(0.0, due - time.monotonic())
                self.lock.wait(min(left, threading.TIMEOUT_MAX))

    def _watch_memory(self) -> None:
        """Stop workers that use more memory than allowed."""
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.closed or any(worker.is_busy for worker in self.all))
                if self.closed:
                    return
                busy = [(worker, worker.run, self._allowed(worker)) for worker in self.all if worker.is_busy]
            for worker, run, allowed in busy:
                # Without the lock, because the kernel can take milliseconds to count.
                used = used_bytes(worker.process.pid, allowed)
                if used is not None and used > allowed:
                    with self.lock:
                        self._stop_for_memory(worker, run, used, allowed)
            time.sleep(1 / CHECKS_PER_SECOND)

    def _allowed(self, worker: WorkerProcess) -> int:
        """Return the bytes that a worker may have in memory now."""
        run = worker.run
        if run is None or run.memory is None or not run.picked_up:
            return self.memory
        return min(self.memory, max(worker.used_before, WORKER) + run.memory)

    def _stop_for_memory(self, worker: WorkerProcess, run: Run | None, used: int, allowed: int) -> None:
        if worker.run is not run or run is None or worker.stopping:
            return  # its run ended meanwhile, perhaps for another reason
        if allowed < self.memory and run.memory is not None:
            error = exceeded_by_job(run.memory, run.phase)
        else:
            error = exceeded(used, allowed, run.phase)
        _log.warning("Worker %d: %s", worker.process.pid, error)
        if not run.finished:
            worker.run = None
            self.fail(run, error)
        self.stop(worker)
        self.lock.notify_all()

    def _due(self, worker: WorkerProcess) -> float:
        """Return when the clock must act on a worker, on the monotonic clock; infinity for never."""
        if worker.run is not None or worker.stopping:
            return worker.due()
        usable = [one for one in self.all if one.lane == worker.lane and not one.stopping]
        usable.sort(key=lambda one: (one.run is None, -one.last_used))
        kept = usable[: self.lanes[worker.lane].kept]
        return math.inf if worker in kept else worker.idle_since + self.idle
