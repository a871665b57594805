"""One answer to whether a request of a page is known, running or failed."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from inspector.core.errors import InvalidInput
from inspector.service.engine import Job

Answer = TypeVar("Answer")
_LOOK_SECONDS = 0.02  # between looks at the progress of a job


@dataclass(frozen=True)
class Outcome(Generic[Answer]):
    """A request at one moment. Without a result or a failure, its job runs, unless no job was started.

    Attributes:
      job: what must end first: the job of the request, or that of an earlier one.
      failure: why the job of the request failed, in one sentence.
      so_far: the part of the result that the running job has reported.
    """

    result: Answer | None = None
    job: Job[Answer] | None = None
    failure: str | None = None
    so_far: Answer | None = None

    @property
    def ended(self) -> bool:
        """Whether no job is needed any more."""
        return self.result is not None or self.failure is not None

    @property
    def known(self) -> Answer | None:
        """The result, or the part of it that is known."""
        return self.so_far if self.result is None else self.result


class NewestRequest(Generic[Answer]):
    """Runs one job at a time, for the newest request of a session, and remembers why requests failed.

    A job of an earlier request is cancelled while it is queued. While it runs, it is cancelled only with
    `cancels`, because that could end the process that has traced the model; the newest request starts when
    it has ended. The job of a `NewestRequest` that is no longer used is cancelled: Streamlit drops the state
    of a session some time after its tab is closed.
    """

    def __init__(self, cancels: bool = False) -> None:
        self._cancels = cancels
        self._so_far: tuple[Job[Answer], Answer] | None = None  # read once, so that pages can compare it
        self._running: list[tuple[str, Job[Answer]]] = []  # at most one, with the key of its request
        self._failures: dict[str, str] = {}
        weakref.finalize(self, _cancel, self._running)

    def outcome(
        self,
        key: str,
        known: Callable[[], Answer | None],
        start: Callable[[], Job[Answer]] | None = None,
        seconds: float = 0.0,
        so_far: Callable[[Mapping[str, Any]], Answer | None] = lambda progress: None,
    ) -> Outcome[Answer]:
        """Return what is known of the request with this key.

        Args:
          known: returns the result if the service knows it.
          start: starts the job of a request that is neither known nor failed; None starts none.
          seconds: wait for the job for so long, or until a part of its result is known.
          so_far: returns the part of the result in the progress of the job.
        """
        outcome = self._with_part(key, self._outcome(key, known, start), so_far)
        for _ in range(math.ceil(seconds / _LOOK_SECONDS)):
            if outcome.job is None or outcome.so_far is not None:
                break
            outcome.job.wait(_LOOK_SECONDS)
            outcome = self._with_part(key, self._outcome(key, known, start), so_far)
        return outcome

    def cancel(self) -> None:
        """Cancel the running job."""
        _cancel(self._running)

    def _outcome(
        self,
        key: str,
        known: Callable[[], Answer | None],
        start: Callable[[], Job[Answer]] | None,
    ) -> Outcome[Answer]:
        for earlier, job in self._running:
            if start and earlier != key and (self._cancels or job.state == "queued"):
                job.cancel()
            if job.finished:
                self._running.clear()
                self._take(earlier, job)
        if (result := known()) is not None:
            return Outcome(result)
        if (failure := self._failures.get(key)) is not None:
            return Outcome(failure=failure)
        if start and not self._running:
            self._running.append((key, start()))
        return Outcome(job=self._running[0][1] if self._running else None)

    def _with_part(
        self,
        key: str,
        outcome: Outcome[Answer],
        so_far: Callable[[Mapping[str, Any]], Answer | None],
    ) -> Outcome[Answer]:
        """Return an outcome with the part of the result that the job of this request has reported."""
        job = outcome.job
        if job is None or self._running[0][0] != key:
            return outcome
        if self._so_far is None or self._so_far[0] is not job:
            part = so_far(job.progress)
            self._so_far = None if part is None else (job, part)
        return outcome if self._so_far is None else replace(outcome, so_far=self._so_far[1])

    def _take(self, key: str, job: Job[Answer]) -> None:
        try:
            job.answer()  # the service then knows the result
        except InvalidInput as error:
            if job.state == "failed":
                self._failures[key] = str(error)


def _cancel(running: list[tuple[str, Job[Answer]]]) -> None:
    for _, job in running:
        job.cancel()
