"""A job as its callers see it, and the run of a worker that jobs share."""

from __future__ import annotations

import concurrent.futures as futures
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

from inspector.jobs.engine.environment import Environment
from inspector.text.errors import InvalidInput


@dataclass(frozen=True)
class Requester:
    """The owner of a job.

    Attributes:
      owner: identifies the owner: a signed-in user, a browser, or a browser session.
      name: the owner's name, as shown to others.
      session: the browser session that waits for the job; None outside of a browser.
      signed_in: the owner is a user, who remains when the browser session ends.
    """

    owner: str
    name: str
    session: str | None = None
    signed_in: bool = False

    @property
    def session_digest(self) -> str | None:
        """Return a name of the session for logs. Who knows the session itself can take it over."""
        return None if self.session is None else digest_of_session(self.session)


# The command line and the server's own jobs, whose number has no bound.
LOCAL = Requester("", "this machine")


def digest_of_session(session: str) -> str:
    """Return 16 hexadecimal digits that identify a session, but do not open it."""
    return hashlib.sha256(session.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class JobSubject:
    """The task of a job, for the list of jobs and the audit log.

    Attributes:
      title: the model and the mesh; empty without a layout.
      target: the target of the layout; None without a layout.
      layout: a digest of the layout's JSON, or of the whole request without a layout.
    """

    title: str = ""
    target: str | None = None
    layout: str | None = None


NO_SUBJECT = JobSubject()


ALONE = ""  # the name of the only lane of a pool without named ones


@dataclass(frozen=True)
class Lane:
    """The number of workers of a pool for the jobs of one lane.

    Attributes:
      workers: the most at once.
      kept: workers that are never taken by other lanes nor stopped when idle, so that a job begins at once.
      listed: users and the audit log see its jobs. Others take a moment.
    """

    workers: int
    kept: int = 0
    listed: bool = True


FIRST_PHASE = "start"  # before a job's first report, while the worker starts and imports JAX
FINAL = ("done", "failed", "cancelled")

Answer = TypeVar("Answer")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Status:
    """A job at one moment.

    state: "queued", "running", "done", "failed" or "cancelled".
    place: position in the queue, from 1; None unless queued.
    phase: the last phase that the job reported, "start" before the first; None while queued.
    progress: the figures last reported in this phase.
    phases: every phase in order, with its seconds so far.
    elapsed: seconds since a worker began the run; 0.0 while queued.
    result: JSON of a worker; None unless done. Callers share it and must not change it.
    error: one sentence if failed or cancelled.
    details: text for a log: a traceback, or the last output of a worker that died.
    refused: the job failed because of its request, and would fail again.
    """

    state: str
    place: int | None
    phase: str | None
    progress: dict[str, Any]
    phases: tuple[tuple[str, float], ...]
    elapsed: float
    result: Any
    error: str | None
    details: str | None
    refused: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Job(Generic[Answer]):
    """One caller's handle on a job. Every method may be called from any thread.

    Each property reads `status()` at its own moment.
    """

    status: Callable[[], Status]
    cancel: Callable[[], None]  # returns at once; the run stops when no other caller waits for it
    # Done at the end. Its callbacks run with the lock of the pool held, so they must return at once.
    ended: Future[None]
    _decode: Callable[[Any], Answer]

    def decoded(self, decode: Callable[[Answer], Other]) -> Job[Other]:
        """Return the same job with an answer that `decode` makes of this one's."""
        before: Callable[[Any], Any] = self._decode
        job: Job[Any] = self
        return replace(job, _decode=lambda result: decode(before(result)))

    def wait(self, timeout: float | None = None) -> Self:
        """Block until the job is finished, at most `timeout` seconds. Return the job itself."""
        futures.wait([self.ended], timeout)
        return self

    def answer(self) -> Answer:
        """Return the decoded result of a job that is done.

        Raises:
          InvalidInput: the job failed, was cancelled or is not finished.
        """
        status = self.status()
        if status.state != "done":
            raise InvalidInput(status.error or "the job has not finished")
        return self._decode(status.result)

    @property
    def finished(self) -> bool:
        return self.status().state in FINAL

    @property
    def state(self) -> str:
        return self.status().state

    @property
    def result(self) -> Any:
        return self.status().result

    @property
    def error(self) -> str | None:
        return self.status().error

    @property
    def refused(self) -> bool:
        return self.status().refused

    @property
    def progress(self) -> dict[str, Any]:
        return self.status().progress

    def __repr__(self) -> str:
        return f"<Job: {self.state}>"


def unchanged(result: dict[str, Any]) -> dict[str, Any]:
    return result


@dataclass(eq=False)
class Run:
    """One execution of a job. Guarded by the pool's lock. Times are on the monotonic clock."""

    number: int
    lane: str
    kind: str
    text: str  # its payload as JSON
    payload: dict[str, Any]
    environment: Environment
    timeout: float | None = None  # seconds from when it begins; None for no limit
    memory: int | None = None  # bytes beyond those of its worker when it begins; None for no limit
    subject: JobSubject = NO_SUBJECT
    topic: str | None = None  # runs with the same topic use the same cached values
    otherwise: dict[str, Any] | None = None  # the payload to try if it fails
    submitted: float = field(default_factory=time.monotonic)
    callers: list[Caller] = field(default_factory=list)  # those that wait for it
    attempts: int = 0  # workers that it was sent to
    picked_up: bool = False  # a worker has begun to execute it
    state: str = "queued"
    began: float = 0.0
    ended: float | None = None
    phases: list[tuple[str, float]] = field(default_factory=list)  # name, and when it began
    progress: dict[str, Any] = field(default_factory=dict)
    result: Any = None  # JSON of a worker
    error: str | None = None
    details: str | None = None
    refused: bool = False

    @property
    def key(self) -> tuple[str, str, str, Environment]:
        """What equal requests share."""
        return self.lane, self.kind, self.text, self.environment

    @property
    def finished(self) -> bool:
        """Whether the outcome is final. A worker may still be busy with stopping it."""
        return self.state in FINAL

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners that wait for it, each once, the first one first."""
        return tuple(dict.fromkeys(caller.requester.owner for caller in self.callers))

    @property
    def deadline(self) -> float:
        return float("inf") if self.timeout is None else self.began + self.timeout

    @property
    def reported(self) -> bool:
        """Whether the job has reported progress since it was last sent to a worker."""
        return len(self.phases) > 1 or bool(self.progress)

    @property
    def phase(self) -> str:
        return self.phases[-1][0] if self.phases else FIRST_PHASE

    def begin(self) -> None:
        """Record that it was sent to a worker, perhaps not for the first time."""
        self.state = "running"
        self.attempts += 1
        self.began = time.monotonic()
        self.phases = [(FIRST_PHASE, self.began)]
        self.progress = {}
        self.refused = False

    def advance(self, phase: str, figures: dict[str, Any]) -> None:
        """Record a report of its progress."""
        if phase != self.phases[-1][0]:
            self.phases.append((phase, time.monotonic()))
        self.progress = figures

    def status(self, place: int | None) -> Status:
        """Return its status now; `place` is its position in the queue."""
        now = time.monotonic() if self.ended is None else self.ended
        ends = [began for _, began in self.phases[1:]] + [now]
        return Status(
            state=self.state,
            place=place,
            phase=self.phase if self.phases else None,
            progress=self.progress,
            phases=tuple((name, end - began) for (name, began), end in zip(self.phases, ends, strict=False)),
            elapsed=now - self.began if self.phases else 0.0,
            result=self.result,
            error=self.error,
            details=self.details,
            refused=self.refused,
        )


@dataclass(eq=False)
class Caller:
    """One caller of a run. `cancelled` is the status when this caller cancelled."""

    run: Run
    requester: Requester
    cancelled: Status | None = None
    ended: Future[None] = field(default_factory=Future)
