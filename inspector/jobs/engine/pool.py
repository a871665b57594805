"""Jobs of a server or a command: who asked for them, and which worker or thread runs which job."""

import atexit
import functools
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from inspector.jobs import host_memory
from inspector.jobs.engine import process
from inspector.jobs.engine.environment import Environment, of_worker
from inspector.jobs.engine.job import (
    ALONE,
    LOCAL,
    NO_SUBJECT,
    Caller,
    Job,
    JobSubject,
    Lane,
    Requester,
    Run,
    Status,
    unchanged,
)
from inspector.jobs.engine.process import Process
from inspector.jobs.engine.workers import WorkerProcess, Workers, WorkerStatus
from inspector.text.errors import InvalidInput
from inspector.text.formatting import and_text, counted

GRACE = 0.5  # seconds that a cancelled job has to stop by itself before its worker is killed
CLOSING = 5.0  # seconds that `close` waits for killed workers; they are gone in milliseconds
IDLE_SECONDS = 120.0  # after which an idle worker is stopped, except the last one of its pool

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listed:
    """A queued or running run at one moment.

    Attributes:
      requesters: those that wait for it; equal requests share a run.
      age: seconds since it was submitted.
      pids: the process ids of its worker; empty while it is queued.
    """

    lane: str
    number: int
    kind: str
    subject: JobSubject
    requesters: tuple[Requester, ...]
    status: Status
    age: float
    pids: tuple[int, ...]

    def belongs_to(self, owner: str) -> bool:
        """Return whether this owner can cancel it."""
        return any(caller.owner == owner for caller in self.requesters)


@dataclass(frozen=True)
class Event:
    """What happened to a request of an owner, for the audit log.

    Attributes:
      outcome: the final state of an ended run, or why a request was refused; None for a start.
      seconds: from the beginning of the run to its end; None unless it began and ended.
    """

    event: Literal["start", "end", "cancel", "refuse"]
    requester: Requester
    kind: str
    subject: JobSubject
    outcome: str | None = None
    seconds: float | None = None


def unreported(event: Event) -> None:
    """Ignore an event, because there is no audit log."""


class Pool:
    """Runs jobs on at most `workers` processes and queues the others.

    Jobs of different `lanes` do not wait for each other, if there are enough workers: each lane has a queue
    and a bound within `workers`. Without lanes, all jobs are in one. An owner has at most `most` queued and
    running jobs in a listed lane, so that no owner fills the queue; None is no bound.

    Thread safe. Starts no process before it is needed. `jobs` is the module whose `JOBS` maps names of
    jobs to functions. It decides what code runs, so it must never come from a request. A cancelled job
    has `grace` seconds to stop before its worker is killed. A worker that is idle for `idle` seconds is
    stopped, because it keeps the memory of its runs, unless its lane keeps it.

    A worker that uses more than `memory` bytes is killed, and its run fails with a sentence; None is the
    limit of this machine (`memory_limit.of_worker`).

    `on_event` is called for each start, end, cancel and refusal, with the lock held, so it must return at
    once.

    One lock guards all state, also that of runs and workers. While it is held, the only thing waited for
    is the start of a process. Threads of a process call `_on_message` and `_on_end` only.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        lanes: Mapping[str, Lane] | None = None,
        jobs: str = "inspector.jobs.functions",
        grace: float = GRACE,
        idle: float = IDLE_SECONDS,
        most: int | None = None,
        on_event: Callable[[Event], None] = unreported,
        memory: int | None = None,
    ) -> None:
        self._table = jobs
        self._grace = grace
        self._lanes = dict(lanes or {ALONE: Lane(workers, 1)})
        self._most = most
        self._on_event = on_event
        self._lock = threading.Condition()  # notified whenever anything below changes
        self._queue: list[Run] = []  # in the order in which they begin
        self._workers = Workers(
            *(workers, self._lanes, idle, of_worker() if memory is None else memory, self._lock),
            self._process,
            self._time_out,
            self._fail,
        )
        self._shared: dict[tuple[str, str, str, Environment], Run] = {}  # queued or running
        self._numbers = itertools.count(1)
        self._owner = os.getpid()
        atexit.register(self.close)

    def submit(
        self,
        kind: str,
        payload: dict[str, Any],
        environment: Environment,
        timeout: float | None = 600.0,
        requester: Requester = LOCAL,
        subject: JobSubject = NO_SUBJECT,
        topic: str | None = None,
        memory: int | None = None,
        lane: str = ALONE,
        otherwise: dict[str, Any] | None = None,
    ) -> Job[dict[str, Any]]:
        """Queue a job, and return at once.

        A job that is queued or running with the same payload and environment is shared. `timeout` is in
        seconds from when a worker begins the run, None for no limit; the longest of all callers counts. Jobs
        with the same `topic` use the same cached values, so an idle worker that has run one is preferred.
        `memory` is the bytes that the job may use beyond those of its worker at its start; None leaves it
        the limit of a worker alone. It suits jobs that parse what others wrote. `otherwise` is a payload that
        is tried once if the job fails.
        Raises ValueError or TypeError if the payload is not JSON, RuntimeError after `close`, and
        InvalidInput if the owner has too many jobs in the lane.
        """
        text = process.canonical(payload)
        caller = self._call(
            Run(
                next(self._numbers),
                lane,
                kind=kind,
                text=text,
                payload=json.loads(text),  # a copy, so that the caller may change its dict later
                environment=environment,
                timeout=timeout,
                memory=memory,
                subject=subject,
                topic=topic,
                otherwise=otherwise,
            ),
            requester,
        )
        return self._job(caller)

    def warm(self, environment: Environment, lane: str = ALONE) -> None:
        """Start a worker that imports JAX, ahead of its first job. Return at once.

        An idle worker may be stopped to make room. If all workers are busy, nothing is started.
        """
        with self._lock:
            self._open()
            self._workers.warm(lane, environment)
            self._assign()

    def workers(self, *lanes: str) -> tuple[WorkerStatus, ...]:
        """Return all workers of these lanes that are not being stopped; without lanes, those of all."""
        with self._lock:
            return self._workers.status(lanes)

    def jobs(self) -> tuple[Listed, ...]:
        """Return the runs of each listed lane: the running ones, then the queued ones as they begin."""
        with self._lock:
            return tuple(job for name, lane in self._lanes.items() if lane.listed for job in self._jobs(name))

    def _jobs(self, lane: str) -> list[Listed]:
        now = time.monotonic()
        running = sorted((run for run in self._running() if run.lane == lane), key=lambda run: run.number)
        return [
            Listed(
                lane,
                run.number,
                kind=run.kind,
                subject=run.subject,
                requesters=tuple(dict.fromkeys(caller.requester for caller in run.callers)),
                status=run.status(place if place > 0 else None),
                age=now - run.submitted,
                pids=tuple(worker.process.pid for worker in self._workers.all if worker.run is run),
            )
            for place, run in enumerate([*running, *self._queued(lane)], 1 - len(running))
        ]

    def _queued(self, lane: str) -> list[Run]:
        return [run for run in self._queue if run.lane == lane]

    def cancel(self, number: int, owner: str) -> None:
        """Cancel the part of one owner in a run. It stops when no other owner waits for it.

        Raises:
          InvalidInput: the run has ended, or belongs to others.
        """
        with self._lock:
            runs = [run for run in (*self._queue, *self._running()) if run.number == number]
            if not runs:
                raise InvalidInput(f"job {number} has ended")
            (run,) = runs
            own = [caller for caller in run.callers if caller.requester.owner == owner]
            if not own:
                names = list(dict.fromkeys(caller.requester.name for caller in run.callers))
                raise InvalidInput(f"job {number} belongs to {and_text(names)}, who alone can cancel it")
            for caller in own:
                self._cancel(caller)

    def sessions(self) -> set[str]:
        """Return the browser sessions that wait for a run."""
        with self._lock:
            sessions = {caller.requester.session for caller in self._callers()}
            return {session for session in sessions if session is not None}

    def leave(self, session: str) -> None:
        """Cancel the jobs of a browser session that has ended."""
        with self._lock:
            for caller in self._callers():
                if caller.requester.session == session:
                    self._cancel(caller)

    def _callers(self) -> list[Caller]:
        return [caller for run in (*self._queue, *self._running()) for caller in run.callers]

    @property
    def closed(self) -> bool:
        """Whether it takes no more jobs."""
        return self._workers.closed

    def close(self) -> None:
        """Cancel all jobs and end all workers. Return when they have ended. May be repeated."""
        if os.getpid() != self._owner:
            return  # in a fork of the server, which does not own the workers
        with self._lock:
            busy = [worker.run for worker in self._workers.all if worker.run is not None]
            for run in [*self._queue, *busy]:
                if not run.finished:
                    error = "The server stopped before this run was finished."
                    self._finish(run, "cancelled", error=error)
            self._queue.clear()
            workers = self._workers.close()
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

    # The methods of a Job.

    def _job(self, caller: Caller) -> Job[Any]:
        return Job(
            functools.partial(self._status, caller),
            functools.partial(self._cancel, caller),
            caller.ended,
            unchanged,
        )

    def _status(self, caller: Caller) -> Status:
        with self._lock:
            if caller.cancelled is not None:
                return caller.cancelled
            run = caller.run
            place = self._queued(run.lane).index(run) + 1 if run.state == "queued" else None
            return run.status(place)

    def _cancel(self, caller: Caller) -> None:
        with self._lock:
            run = caller.run
            if caller.cancelled is not None or run.finished:
                return
            before = self._status(caller)
            error = "Cancelled while waiting in the queue."
            if run.state == "running":
                error = f"Cancelled during {before.phase}, after {before.elapsed:.1f} s."
            caller.cancelled = replace(before, state="cancelled", place=None, error=error)
            self._report_end("cancel", run, caller.requester, "cancelled")
            run.callers.remove(caller)
            caller.ended.set_result(None)
            if not run.callers:
                self._abandon(run, "cancelled", error)
            self._lock.notify_all()

    # Runs and workers. The lock is held in all of these.

    def _open(self) -> None:
        """Raise RuntimeError if closed. Start the threads of the pool, if they do not run."""
        if self.closed:
            raise RuntimeError("The pool is closed.")
        self._workers.watch()

    def _report(self, lane: str, event: Event) -> None:
        if self._lanes[lane].listed:
            self._on_event(event)

    def _call(self, new: Run, requester: Requester) -> Caller:
        """Queue a run, or join one with the same key that has not ended.

        Raises:
          InvalidInput: the owner has too many jobs in the lane.
        """
        with self._lock:
            self._open()
            run = self._shared.get(new.key)
            reason = self._why_refused(new.lane, run, requester)
            if reason is not None:
                self._report(new.lane, Event("refuse", requester, new.kind, new.subject, reason))
                raise InvalidInput(reason)
            if run is None:
                run = self._shared[new.key] = new
                self._queue.append(run)
            elif run.timeout is not None:
                run.timeout = None if new.timeout is None else max(run.timeout, new.timeout)
            caller = Caller(run, requester)
            if run.state == "running":
                self._report(run.lane, Event("start", requester, run.kind, run.subject))
            run.callers.append(caller)
            self._assign()
            return caller

    def _why_refused(self, name: str, run: Run | None, requester: Requester) -> str | None:
        """Return why the owner may not join this run or start a new one in this lane, or None."""
        if self._most is None or requester.owner == LOCAL.owner or not self._lanes[name].listed:
            return None
        if run is not None and (run.state != "queued" or requester.owner in run.owners):
            return None
        own = [caller for caller in self._callers() if caller.requester.owner == requester.owner]
        if len({caller.run.number for caller in own if caller.run.lane == name}) < self._most:
            return None
        return (
            f"{counted(self._most, 'job')} of yours already in the queue, the most allowed: wait until one "
            "ends, or cancel one on the Jobs page"
        )

    def _running(self) -> list[Run]:
        runs = [worker.run for worker in self._workers.all if worker.run is not None]
        return [run for run in runs if not run.finished]

    def _assign(self) -> None:
        """Assign queued runs to workers. Called after every change."""
        for lane in self._lanes:
            self._assign_in(lane)
        self._workers.start_warm(run.lane for run in self._queue)
        self._lock.notify_all()

    def _assign_in(self, lane: str) -> None:
        for run in self._queued(lane):
            try:
                worker = self._workers.free(lane, run.environment, run.topic)
            except (OSError, ValueError) as error:
                self._queue.remove(run)
                self._finish(run, "failed", error=f"A worker could not be started: {error}.")
                continue
            if worker is None:
                break
            self._send(worker, run)

    def _send(self, worker: WorkerProcess, run: Run) -> None:
        self._queue.remove(run)
        run.begin()
        for requester in dict.fromkeys(caller.requester for caller in run.callers):
            self._report(run.lane, Event("start", requester, run.kind, run.subject))
        worker.last_used = next(self._workers.uses)
        worker.run = run
        if run.topic is not None:
            if run.topic in worker.topics:
                worker.topics.remove(run.topic)
            worker.topics.append(run.topic)
        worker.process.send(
            process.encode("run", run=run.number, job=run.kind, payload=run.payload, memory=run.memory)
        )

    def _fail(self, run: Run, error: str, details: str | None = None) -> None:
        """Record that a run failed in its worker, or queue it with the payload that is tried then."""
        if run.otherwise is None:
            self._finish(run, "failed", error=error, details=details)
            return
        _log.info("%s is tried otherwise, because it failed: %s", run.kind, error)
        run.payload, run.otherwise = run.otherwise, None
        run.attempts = 0
        self._put_back(run)

    def _put_back(self, run: Run) -> None:
        """Queue a run before all others."""
        run.state, run.phases, run.picked_up = "queued", [], False
        self._queue.insert(0, run)

    def _finish(self, run: Run, state: str, **outcome: Any) -> None:
        """Record the final outcome of a run."""
        run.ended = time.monotonic()
        for name, value in outcome.items():
            setattr(run, name, value)
        run.state = state
        for caller in run.callers:
            caller.ended.set_result(None)
        for requester in dict.fromkeys(caller.requester for caller in run.callers):
            self._report_end("end", run, requester, state)
        if self._shared.get(run.key) is run:
            del self._shared[run.key]
        if state == "failed":
            _log.info("%s on %s failed: %s", run.kind, run.environment, run.error)
            if run.details:
                _log.debug("%s", run.details)

    def _report_end(
        self, event: Literal["end", "cancel"], run: Run, requester: Requester, outcome: str
    ) -> None:
        seconds = time.monotonic() - run.began if run.phases else None
        self._report(run.lane, Event(event, requester, run.kind, run.subject, outcome, seconds))

    def _abandon(self, run: Run, state: str, error: str) -> None:
        """Remove a run from the queue, or have its worker stop it."""
        if run in self._queue:
            self._queue.remove(run)
        self._finish(run, state, error=error)
        for worker in self._workers.all:
            if worker.run is run and not worker.stopping:
                worker.process.send(process.encode("cancel", run=run.number))
                worker.kill_at = time.monotonic() + self._grace
        self._assign()

    def _process(self, worker: WorkerProcess) -> Process:
        environment = worker.environment
        return Process(
            environment.for_child(),
            self._table,
            functools.partial(self._on_message, worker),
            functools.partial(self._on_end, worker),
            arguments=(str(environment.processes),) if environment.processes > 1 else (),
        )

    # Called from the threads of a process.

    def _on_message(self, worker: WorkerProcess, message: dict[str, Any]) -> None:
        with self._lock:
            kind = message["kind"]
            run = worker.run
            worker.answered = True
            if kind == "unusable":
                worker.unusable = message["error"]
                _log.warning("%s", worker.unusable)
                self._workers.stop(worker)  # at once, so that it gets no further job
                return
            if run is None or message.get("run") != run.number:
                return
            if kind == "started":
                run.picked_up = True
                if run.memory is not None:
                    worker.used_before = host_memory.resident_bytes(worker.process.pid) or 0
            elif kind == "dropped":
                run.picked_up = False
            elif kind == "progress":
                if not run.finished:
                    run.advance(message["phase"], message["figures"])
            else:
                worker.run = None
                worker.kill_at = None
                worker.last_used = next(self._workers.uses)
                worker.idle_since = time.monotonic()
                if not run.finished:
                    if kind == "done":
                        self._finish(run, "done", result=message["result"])
                    elif kind == "cancelled":
                        self._finish(run, "cancelled", error="The job stopped by itself.")
                    else:
                        run.refused = message["details"] is None
                        self._fail(run, message["error"], message["details"])
                self._assign()

    def _on_end(self, worker: WorkerProcess) -> None:
        with self._lock:
            self._workers.all.remove(worker)
            run, worker.run = worker.run, None
            if run is not None and not run.finished:
                # One of several processes can have been dead before the others began the job.
                begun = run.picked_up and (worker.environment.processes == 1 or run.reported)
                if not begun and run.attempts == 1 and worker.unusable is None:
                    # It ended before it began the job, so another worker can run it.
                    self._put_back(run)
                else:
                    self._fail(run, worker.explain_end(run), worker.process.stderr())
            self._assign()

    def _time_out(self, run: Run) -> None:
        error = (
            f"The run was stopped during {run.phase}, because it took longer than the"
            f" {run.timeout:g} s allowed; nothing was saved."
        )
        self._abandon(run, "failed", error)
