"""A job as its callers see it."""

from __future__ import annotations

import concurrent.futures as futures
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from inspector.core.errors import InvalidInput

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
