"""One execution of a job, shared by all callers that made the same request."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from inspector.service.engine.environment import Environment
from inspector.service.engine.job import FINAL, FIRST_PHASE, Status
from inspector.service.engine.requester import NO_SUBJECT, Requester, Subject


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
    subject: Subject = NO_SUBJECT
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
