"""The workers of one server: who runs what, who waits, who has to go."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import logging
import math
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Self

from inspector.service.engine import protocol
from inspector.service.engine.environment import Environment
from inspector.service.engine.group import name_of
from inspector.service.engine.job import FIRST_PHASE, Job, Run, Status
from inspector.service.engine.process import Process

GRACE = 0.5  # seconds that a cancelled job has to stop by itself before its worker is killed
CLOSING = 5.0  # seconds that `close` waits for killed workers; they are gone in milliseconds

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Worker:
    """A process and what it is at. Guarded by the pool's lock."""

    environment: Environment
    used: int  # a count that grows: the lowest is the least recently used
    process: Process = None  # type: ignore[assignment]  # set before the lock is let go
    run: Run | None = None  # what keeps it busy, even if nobody waits for that any more
    stopping: bool = False  # killed, and its end not yet seen
    kill_at: float | None = None  # when a cancel has been ignored for too long, monotonic clock
    unusable: str | None = None  # why warming failed

    def due(self) -> float:
        """When the clock has to act on it, on the monotonic clock; infinite for never."""
        if self.stopping:
            return math.inf
        if self.kill_at is not None:
            return self.kill_at
        if self.run is not None and not self.run.finished:
            return self.run.deadline
        return math.inf


@dataclass(frozen=True)
class Seat:
    """One worker as others may see it."""

    pid: int
    environment: Environment
    busy: bool


class Pool:
    """Runs jobs on at most `workers` processes, and queues what they cannot take.

    Thread safe; starts nothing until asked. `jobs` names the module whose `JOBS` says which
    function does which job. That name decides what code runs, so it must come from whoever starts
    the server, never from a request. `grace` is how many seconds a cancelled job has to stop by
    itself before its worker is killed. Raises ValueError if `workers` is not a positive integer.

    One lock guards everything here and in the runs and workers. Nothing is waited for while it is
    held, except for a process to be started, and the threads that serve a process come back in
    through `_heard` and `_ended` only.
    """

    def __init__(
        self, workers: int = 2, *, jobs: str = "inspector.producers", grace: float = GRACE
    ) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise ValueError(f"`workers` is {workers!r}; it must be a whole number from 1 up.")
        self._limit = workers
        self._table = jobs
        self._grace = grace
        self._lock = threading.Condition()  # notified whenever anything below changes
        self._queue: list[Run] = []
        self._workers: list[Worker] = []
        self._joinable: dict[tuple[str, str, Environment], Run] = {}  # queued or running
        self._wishes: list[Environment] = []  # to be warmed when there is room
        self._numbers = itertools.count(1)
        self._uses = itertools.count(1)
        self._watch: threading.Thread | None = None
        self._closed = False
        self._owner = os.getpid()
        atexit.register(self.close)

    def submit(
        self,
        kind: str,
        payload: dict[str, Any],
        environment: Environment,
        timeout: float | None = 600.0,
    ) -> Job:
        """Have a job run; returns at once.

        The same job for the same environment, still queued or running, is joined instead of run
        again. `timeout` is in seconds from when the run begins on a worker, None for no limit; of
        several callers the longest holds. Raises ValueError or TypeError for a payload that JSON
        cannot hold or a time-out that is not positive, RuntimeError after `close`.
        """
        if timeout is not None and not timeout > 0:
            raise ValueError(f"`timeout` is {timeout!r}; it must be a number of seconds above 0.")
        text = protocol.canonical(payload)
        key = (kind, text, environment)
        with self._lock:
            self._open()
            run = self._joinable.get(key)
            if run is None:
                # Read back from its text, so that what the caller does to its dict later does not
                # change what is run.
                run = Run(
                    next(self._numbers), kind, json.loads(text), environment, key, timeout=timeout
                )
                self._joinable[key] = run
                self._queue.append(run)
            elif run.timeout is not None:
                run.timeout = None if timeout is None else max(run.timeout, timeout)
            run.waiters += 1
            self._advance()
            return Job(self, run)

    def warm(self, environment: Environment) -> None:
        """Have a worker with JAX imported, ahead of need, if there is room for one.

        Returns at once. Makes room as a job would, by stopping an idle worker, but never waits
        behind a busy one: then the wish is dropped.
        """
        with self._lock:
            self._open()
            self._wishes = [*self._wishes, environment][-self._limit :]
            self._advance()

    def workers(self) -> tuple[Seat, ...]:
        """The worker processes there are, those being stopped left out."""
        with self._lock:
            return tuple(
                Seat(worker.process.pid, worker.environment, worker.run is not None)
                for worker in self._workers
                if not worker.stopping
            )

    def close(self) -> None:
        """Cancel all jobs and end all workers; returns when they are gone. May be repeated."""
        if os.getpid() != self._owner:
            return  # a fork of the server: the workers are not its own
        with self._lock:
            self._closed = True
            busy = [worker.run for worker in self._workers if worker.run is not None]
            for run in [*self._queue, *busy]:
                if not run.finished:
                    error = "The server stopped before this run was finished."
                    self._finish(run, "cancelled", error=error)
            self._queue.clear()
            self._wishes.clear()
            workers = list(self._workers)
            for worker in workers:
                self._stop(worker)
            self._lock.notify_all()
        until = time.monotonic() + CLOSING
        for worker in workers:
            if not worker.process.join(max(0.0, until - time.monotonic())):
                _log.error("Worker %d did not end.", worker.process.pid)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # What a Job asks.

    def _status(self, job: Job) -> Status:
        with self._lock:
            if job._parted is not None:
                return job._parted
            run = job._run
            return run.status(self._queue.index(run) + 1 if run.state == "queued" else None)

    def _wait(self, job: Job, timeout: float | None) -> None:
        with self._lock:
            self._lock.wait_for(lambda: job._parted is not None or job._run.finished, timeout)

    def _cancel(self, job: Job) -> None:
        with self._lock:
            run = job._run
            if job._parted is not None or run.finished:
                return
            before = self._status(job)
            error = "Cancelled while waiting in the queue."
            if run.state == "running":
                error = f"Cancelled during {before.phase}, after {before.elapsed:.1f} s."
            job._parted = replace(before, state="cancelled", place=None, error=error)
            run.waiters -= 1
            if run.waiters == 0:
                self._abandon(run, "cancelled", error)
            self._lock.notify_all()

    # What happens to runs and workers. The lock is held in all of these.

    def _open(self) -> None:
        """Raise if closed; start what every other method relies on."""
        if self._closed:
            raise RuntimeError("The pool is closed.")
        if self._watch is None:
            self._watch = threading.Thread(target=self._watch_clock, name="pool clock", daemon=True)
            self._watch.start()

    def _advance(self) -> None:
        """Give out whatever can be given out; called after every change."""
        while self._queue:
            run = self._queue[0]
            try:
                worker = self._room(run.environment)
            except (OSError, ValueError) as error:
                self._queue.pop(0)
                self._finish(run, "failed", error=f"A worker could not be started: {error}.")
                continue
            if worker is None:
                break
            self._queue.pop(0)
            self._begin(worker, run)
        while self._wishes and not self._queue:
            wish = self._wishes[0]
            if not any(w.environment == wish and not w.stopping for w in self._workers):
                try:
                    worker = self._room(wish)
                except (OSError, ValueError) as error:
                    _log.warning("A worker could not be started: %s.", error)
                    worker = None
                if worker is not None:
                    worker.process.send(protocol.encode("warm", devices=wish.devices))
                elif any(w.stopping for w in self._workers):
                    break  # room is being made
            self._wishes.pop(0)
        self._lock.notify_all()

    def _room(self, environment: Environment) -> Worker | None:
        """A worker free for this environment; None if there is none yet.

        Starts one if the limit allows, else begins to stop the least recently used idle one: the
        end of that one brings us back here. Raises OSError or ValueError if none can be started.
        """
        idle = [worker for worker in self._workers if worker.run is None and not worker.stopping]
        fitting = [worker for worker in idle if worker.environment == environment]
        if fitting:
            return max(fitting, key=lambda worker: worker.used)
        if len(self._workers) < self._limit:
            worker = Worker(environment, used=next(self._uses))
            several = environment.processes > 1
            worker.process = Process(
                environment.for_child(),
                self._table,
                functools.partial(self._heard, worker),
                functools.partial(self._ended, worker),
                arguments=(str(environment.processes),) if several else (),
            )
            self._workers.append(worker)
            return worker
        if idle and not any(worker.stopping for worker in self._workers):
            self._stop(min(idle, key=lambda worker: worker.used))
        return None

    def _begin(self, worker: Worker, run: Run) -> None:
        run.begin()
        worker.run = run
        worker.used = next(self._uses)
        worker.process.send(
            protocol.encode("run", run=run.number, job=run.kind, payload=run.payload)
        )

    def _finish(self, run: Run, state: str, **outcome: Any) -> None:
        """The run's outcome stands from here on."""
        run.ended = time.monotonic()
        for name, value in outcome.items():
            setattr(run, name, value)
        run.state = state
        if self._joinable.get(run.key) is run:
            del self._joinable[run.key]
        if state == "failed":
            # Whoever shows the error shows the sentence; the rest is for those who look for it.
            _log.info("%s on %s failed: %s", run.kind, run.environment, run.error)
            if run.details:
                _log.debug("%s", run.details)

    def _abandon(self, run: Run, state: str, error: str) -> None:
        """Nobody waits any more: take it from the queue, or have its worker stop it."""
        if run in self._queue:
            self._queue.remove(run)
        self._finish(run, state, error=error)
        for worker in self._workers:
            if worker.run is run and not worker.stopping:
                worker.process.send(protocol.encode("cancel", run=run.number))
                worker.kill_at = time.monotonic() + self._grace
        self._advance()

    def _stop(self, worker: Worker) -> None:
        worker.stopping = True
        worker.kill_at = None
        worker.process.kill()

    # What comes in from other threads.

    def _heard(self, worker: Worker, message: dict[str, Any]) -> None:
        """A worker has sent a message."""
        with self._lock:
            kind = message["kind"]
            run = worker.run
            if kind == "unusable":
                worker.unusable = message["error"]
                _log.warning("%s", worker.unusable)
                self._stop(worker)  # at once, so that no further job is given to it
                return
            if run is None or message.get("run") != run.number:
                return
            if kind == "started":
                run.picked_up = True
            elif kind == "dropped":
                run.picked_up = False
            elif kind == "progress":
                if not run.finished:
                    run.advance(message["phase"], message["figures"])
            else:
                worker.run = None
                worker.kill_at = None
                worker.used = next(self._uses)
                if not run.finished:
                    if kind == "done":
                        self._finish(run, "done", result=message["result"])
                    elif kind == "cancelled":
                        self._finish(run, "cancelled", error="The job stopped by itself.")
                    else:
                        self._finish(
                            run, "failed", error=message["error"], details=message["details"]
                        )
                self._advance()

    def _ended(self, worker: Worker) -> None:
        """A worker's process is gone, and nothing more will come from it."""
        with self._lock:
            self._workers.remove(worker)
            run, worker.run = worker.run, None
            if run is not None and not run.finished:
                if not run.picked_up and run.attempts == 1 and worker.unusable is None:
                    # It died before it could touch the job (killed while idle, say), so another
                    # can have it.
                    run.state, run.phases = "queued", []
                    self._queue.insert(0, run)
                else:
                    error = worker.unusable or _obituary(worker, run)
                    self._finish(run, "failed", error=error, details=worker.process.stderr())
            self._advance()

    def _watch_clock(self) -> None:
        """Act on time-outs, and on cancels that are ignored."""
        with self._lock:
            while not self._closed:
                for worker in list(self._workers):
                    if worker.due() <= time.monotonic():
                        if worker.kill_at is not None:
                            self._stop(worker)
                        else:
                            self._time_out(worker.run)
                # Asked anew, because a time-out may have let other runs begin.
                due = min((worker.due() for worker in self._workers), default=math.inf)
                left = max(0.0, due - time.monotonic())
                self._lock.wait(min(left, threading.TIMEOUT_MAX))

    def _time_out(self, run: Run) -> None:
        phase = run.phases[-1][0]
        error = (
            f"The run was stopped during {phase}, because it took longer than the"
            f" {run.timeout:g} s allowed; nothing was saved."
        )
        self._abandon(run, "failed", error)


def _obituary(worker: Worker, run: Run) -> str:
    """What became of a run whose worker died under it, in one sentence."""
    phase = run.phases[-1][0] if run.phases else FIRST_PHASE
    processes = worker.environment.processes
    if processes > 1:
        return worker.process.obituary(name_of(0, processes), phase, new="new ones")
    return worker.process.obituary(f"The worker with {worker.environment}", phase)
