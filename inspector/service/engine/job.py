"""A job as those see it who asked for it, and the run behind it that they may share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inspector.service.engine.environment import Environment

if TYPE_CHECKING:
    from inspector.service.engine.pool import Pool

# What the time before a job's first report is called: the worker starts and imports JAX.
FIRST_PHASE = "start"

FINAL = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Status:
    """All there is to know about a job at one moment."""

    state: str  # "queued", "running", "done", "failed" or "cancelled"
    place: int | None  # in the queue, from 1; None unless queued
    phase: str | None  # the last phase reported, "start" before the first; None while queued
    progress: dict[str, Any]  # the figures last reported in that phase
    phases: tuple[tuple[str, float], ...]  # every phase in order, with its seconds so far
    elapsed: float  # seconds since the run began on a worker; 0.0 while queued
    result: dict[str, Any] | None  # what the job gave; None unless done. Shared: do not change it
    error: str | None  # one sentence if failed or cancelled
    details: str | None  # text for a log: a traceback, or a dead worker's last output


@dataclass(eq=False)
class Run:
    """One execution, shared by all who asked for the same. Guarded by the pool's lock."""

    number: int
    kind: str
    payload: dict[str, Any]
    environment: Environment
    key: tuple[str, str, Environment]
    timeout: float | None  # seconds from when it begins; None for no limit
    waiters: int = 0
    attempts: int = 0  # workers it was given to
    picked_up: bool = False  # a worker has begun to execute it
    state: str = "queued"
    began: float = 0.0  # on the monotonic clock, as are the two below
    ended: float | None = None
    phases: list[tuple[str, float]] = field(default_factory=list)  # (name, when it began)
    progress: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    error: str | None = None
    details: str | None = None

    @property
    def finished(self) -> bool:
        """Whether its outcome stands; a worker may still be busy stopping it."""
        return self.state in FINAL

    @property
    def deadline(self) -> float:
        """When it is to be timed out, on the monotonic clock."""
        return float("inf") if self.timeout is None else self.began + self.timeout

    def begin(self) -> None:
        """It was given to a worker, perhaps not for the first time."""
        self.state = "running"
        self.attempts += 1
        self.began = time.monotonic()
        self.phases = [(FIRST_PHASE, self.began)]
        self.progress = {}

    def advance(self, phase: str, figures: dict[str, Any]) -> None:
        """It has reported where it is."""
        if phase != self.phases[-1][0]:
            self.phases.append((phase, time.monotonic()))
        self.progress = figures

    def status(self, place: int | None) -> Status:
        """How it stands now."""
        now = time.monotonic() if self.ended is None else self.ended
        ends = [began for _, began in self.phases[1:]] + [now]
        return Status(
            state=self.state,
            place=place,
            phase=self.phases[-1][0] if self.phases else None,
            progress=self.progress,
            phases=tuple(
                (name, end - began) for (name, began), end in zip(self.phases, ends, strict=False)
            ),
            elapsed=now - self.began if self.phases else 0.0,
            result=self.result,
            error=self.error,
            details=self.details,
        )


class Job:
    """One caller's handle on a run. Every method may be called from any thread."""

    def __init__(self, pool: Pool, run: Run) -> None:
        self._pool = pool
        self._run = run
        self._parted: Status | None = None  # how it stood when this caller cancelled

    def status(self) -> Status:
        """All figures at one moment; the properties below each take a moment of their own."""
        return self._pool._status(self)

    @property
    def state(self) -> str:
        """ "queued", "running", "done", "failed" or "cancelled"."""
        return self.status().state

    @property
    def place(self) -> int | None:
        """The place in the queue, from 1; None unless queued."""
        return self.status().place

    @property
    def phase(self) -> str | None:
        """The last phase that the job reported, "start" before the first, None while queued."""
        return self.status().phase

    @property
    def progress(self) -> dict[str, Any]:
        """The figures last reported in this phase."""
        return self.status().progress

    @property
    def phases(self) -> tuple[tuple[str, float], ...]:
        """Every phase so far, in order, with its seconds: so far for the last, else final."""
        return self.status().phases

    @property
    def elapsed(self) -> float:
        """Seconds since the run began on a worker; 0.0 while queued."""
        return self.status().elapsed

    @property
    def result(self) -> dict[str, Any] | None:
        """What the job gave; None unless done. Shared with other callers: do not change it."""
        return self.status().result

    @property
    def error(self) -> str | None:
        """One sentence if the job failed or was cancelled."""
        return self.status().error

    @property
    def details(self) -> str | None:
        """Text for a log if the job failed: a traceback, or a dead worker's last output."""
        return self.status().details

    @property
    def finished(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.status().state in FINAL

    def cancel(self) -> None:
        """Stop waiting; the run itself stops when nobody else waits for it.

        Returns at once, and does nothing to a job that is finished.
        """
        self._pool._cancel(self)

    def wait(self, timeout: float | None = None) -> Job:
        """Block until the job is finished, or for so many seconds; gives the job itself."""
        self._pool._wait(self, timeout)
        return self

    def __repr__(self) -> str:
        return f"<Job {self._run.kind} on {self._run.environment}: {self.state}>"
