"""One answer to whether something slow is known, running or failed, and its name in lists of jobs."""

import hashlib
import json
import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

from inspector.jobs.engine import Job, JobSubject, Status
from inspector.layout import Layout, from_json
from inspector.text.errors import InvalidInput
from inspector.text.formatting import mesh_sizes_text

_DIGEST_CHARACTERS = 16  # of SHA-256


def subject_of(payload: Mapping[str, Any]) -> JobSubject:
    """Return the subject of a payload: its layout, its first layout, or a digest of the whole."""
    layouts = [payload["layout"]] if "layout" in payload else payload.get("layouts") or []
    plain = layouts[0][1] if layouts and isinstance(layouts[0], list) else next(iter(layouts), None)
    if plain is None:
        return JobSubject(layout=_digest(payload))
    layout = from_json(plain)
    title = layout_title(layout)
    if len(layouts) > 1:
        title += f" and {len(layouts) - 1} more"
        return JobSubject(title, layout.target, _digest(layouts))
    return JobSubject(title, layout.target, digest(layout))


def layout_title(layout: Layout) -> str:
    """Return the model and the mesh of a layout."""
    return f"{layout.model}, {mesh_sizes_text(layout.axis_names, layout.mesh_shape)}"


def digest(layout: Layout) -> str:
    """Return the beginning of the SHA-256 of a layout's JSON with sorted keys."""
    return _digest(layout.to_json())


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


Answer = TypeVar("Answer")
_LOOK_SECONDS = 0.005  # between looks at the progress of a job


@dataclass(frozen=True)
class Progress:
    """The progress of a job in words.

    Attributes:
      label: the current phase.
      share: the finished share of the whole job, from 0 to 1.
      note: elapsed and remaining time; empty if unknown.
    """

    label: str
    share: float = 0.0
    note: str = ""


@dataclass(frozen=True, eq=False)
class Request(Generic[Answer]):
    """Something slow that can be asked for.

    Attributes:
      key: the same text for equal requests.
      start: starts its job. Raises InvalidInput if that is impossible.
      known: returns the result if the service knows it.
      so_far: returns the part of the result in the progress of the job.
      layout: the layout that it is about, if it is about one.
      describe: returns the progress of its job in words.
      keep: gets the result of its job, once; None leaves it to the service or to `Asked`.
    """

    key: str
    start: Callable[[], Job[Answer]]
    known: Callable[[], Answer | None] = lambda: None
    so_far: Callable[[Mapping[str, Any]], Answer | None] = lambda progress: None
    layout: Layout | None = None
    describe: Callable[[Status], Progress] = lambda status: Progress(status.phase or "")
    keep: Callable[[Answer], None] | None = None

    def answer(self) -> Answer:
        """Return the result; wait for its job if it is not known.

        Raises:
          InvalidInput: the job cannot be started, or failed.
        """
        known = self.known()
        return self.start().wait().answer() if known is None else known


@dataclass(frozen=True)
class Outcome(Generic[Answer]):
    """A request at one moment. Without a result or a failure, its job runs, unless no job was started.

    Attributes:
      result: also of an earlier job, while `job` makes another one.
      job: what must end first: the job of the request, or that of an earlier one.
      failure: why the job of the request failed or could not be started, in one sentence.
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


class Asked(Generic[Answer]):
    """The requests of one kind in a session: one job at a time, and why jobs failed.

    The job of an earlier request is cancelled when another one is asked. Without `cancels`, it is cancelled
    only while it is queued, because a cancel could end the process that has traced the model; the newest
    request starts when it has ended. The job of an `Asked` that is no longer used is cancelled: Streamlit
    drops the state of a session some time after its tab is closed.

    most: the number of results that are kept here, because the service does not keep them.
    """

    def __init__(self, cancels: bool = True, most: int = 8) -> None:
        self._cancels = cancels
        self._request: Request[Answer] | None = None  # whose job runs
        self._jobs: list[Job[Answer]] = []  # at most one; a list, so that it can be cancelled at the end
        self._so_far: tuple[Job[Answer], Answer] | None = None  # read once, so that pages can compare it
        self._results: LRUCache[str, Answer] = LRUCache(most)
        self._failures: LRUCache[str, tuple[str, bool]] = LRUCache(64)  # and whether it may be retried
        weakref.finalize(self, _cancel, self._jobs)

    def ask(self, request: Request[Answer], start: bool = True, seconds: float = 0.0) -> Outcome[Answer]:
        """Return the known result of a request. Start its job if it is neither known nor failed.

        Args:
          start: whether to start a job, and to cancel that of another request.
          seconds: wait for the job for so long, or until a part of its result is known.
        """
        outcome = self._outcome(request, start)
        for _ in range(math.ceil(seconds / _LOOK_SECONDS)):
            if outcome.job is None or outcome.known is not None:
                break
            outcome.job.wait(_LOOK_SECONDS)
            outcome = self._outcome(request, start)
        return outcome

    def again(self, request: Request[Answer]) -> None:
        """Start the job of a request, whatever is known of it, instead of the running one."""
        self.cancel()
        self._failures.pop(request.key, None)
        self._start(request)

    def running(self) -> Request[Answer] | None:
        """Return the request whose job runs, after the answer of an ended job was kept."""
        self._take()
        return self._request

    @property
    def job(self) -> Job[Answer] | None:
        """The job whose answer was not kept yet, even if it has ended."""
        return self._jobs[0] if self._jobs else None

    def failure(self, key: str) -> str | None:
        """Return why the last job of the request with this key failed or was cancelled by the user."""
        return self._failures.get(key, (None, True))[0]

    def may_retry(self, key: str) -> bool:
        """Return whether this request can have another result: it was not refused."""
        return self._failures.get(key, (None, True))[1]

    def cancel(self) -> None:
        """Cancel the running job, and forget it."""
        _cancel(self._jobs)
        self._jobs.clear()
        self._request = None

    def _outcome(self, request: Request[Answer], start: bool) -> Outcome[Answer]:
        running = self.running()
        other = start and running is not None and running.key != request.key
        if other and (self._cancels or self._jobs[0].state == "queued"):
            self.cancel()
        if (result := request.known()) is not None:
            self._failures.pop(request.key, None)
        else:
            result = self._results.get(request.key)
        if start and result is None and self._request is None and request.key not in self._failures:
            self._start(request)
        if self._request is not None and self._request.key == request.key:
            return Outcome(result, self.job, so_far=self._part())
        if result is not None:
            return Outcome(result)
        failure = self.failure(request.key)
        return Outcome(job=self.job) if failure is None else Outcome(failure=failure)

    def _part(self) -> Answer | None:
        """Return the part of the result that the running job has reported."""
        job = self._jobs[0]
        if self._request is not None and (self._so_far is None or self._so_far[0] is not job):
            part = self._request.so_far(job.progress)
            self._so_far = None if part is None else (job, part)
        return None if self._so_far is None else self._so_far[1]

    def _start(self, request: Request[Answer]) -> None:
        try:
            job = request.start()
        except InvalidInput as error:
            self._failures[request.key] = str(error), True
        else:
            self._jobs.append(job)
            self._request = replace(request, start=lambda: job)  # without the upload that it was made of

    def _take(self) -> None:
        """Keep the answer of an ended job, or why it failed."""
        request, job = self._request, self.job
        if request is None or job is None or not job.finished:
            return
        try:
            answer = job.answer()
        except InvalidInput as error:
            self._failures[request.key] = str(error), not job.refused
        else:
            if request.keep is not None:
                request.keep(answer)  # which can start another request
            elif request.known() is None:
                self._results[request.key] = answer
        if self.job is job:  # last, because Streamlit can stop the script when it changes the session
            self._jobs.clear()
            self._request = None


def _cancel(jobs: list[Job[Answer]]) -> None:
    for job in jobs:
        job.cancel()
