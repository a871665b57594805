"""The searches of a server. They go on when a browser is closed, and any session can watch them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast

from cachetools import LRUCache

from inspector.compare.search.goal import Goal
from inspector.compare.search.progress import Progress
from inspector.compare.search.result import Objective, SearchResult
from inspector.compare.search.space import Space
from inspector.core.errors import InvalidInput
from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.service import inspection, lanes
from inspector.service.engine import LOCAL, Pool, Requester, Subject
from inspector.service.engine.pool import Listed
from inspector.service.search import executors, task
from inspector.service.search.run import Search
from inspector.service.subject import digest, layout_title

MOST_KEPT = 16  # the searches last started


@dataclass(frozen=True)
class SearchRequest:
    """What identifies a search: equal requests share one."""

    space: Space
    chip: Chip | None
    budget: int
    objective: Objective
    goal: Goal = field(default_factory=Goal)

    def key(self) -> str:
        """Return text that two requests share only if they are equal."""
        locks = self.space.locks
        return repr(
            (
                self.space.layout.key(),
                self.chip and self.chip.name,
                self.budget,
                self.objective,
                (sorted(self.goal.weights.items()), sorted(self.goal.limits.items())),
                (locks.mesh, locks.rules, sorted(locks.sizes.items()), locks.logical),
                sorted(self.space.vary.items()),
            )
        )


class Watched:
    """One search of the server: queued, running, finished or failed. A thread of the pool runs it.

    Attributes:
      link: the URL parameters of the page that began it.
      owners: who began or joined it.
      error: why it failed, in a sentence; None if it did not.
    """

    def __init__(
        self,
        search: Search,
        layout: Layout,
        run: Callable[[Watched], None],
        link: Mapping[str, str] | None = None,
    ) -> None:
        self.layout = layout
        self.search = search
        self.link = dict(link or {})
        self.owners: set[str] = set()
        self.error: str | None = None
        self._run = run
        self._lock = threading.Lock()
        self._began = False
        self._ended = threading.Event()
        self._drawn: tuple[int, SearchResult] | None = None

    def run(self, report: Callable[[str, dict[str, Any]], None]) -> None:
        """Run the search in this thread.

        Raises:
          Exception: the one that ended it; `error` has the sentence.
        """

        def show(state: Progress) -> None:
            figures = {"done": state.done, "of": state.total} if state.total else {}
            report(state.phase, figures)

        self._began = True
        self.search.on_progress = show
        show(self.progress())
        try:
            self._run(self)
        except Exception as error:  # a bug must not leave the page waiting
            known = isinstance(error, InvalidInput)
            self.error = str(error) if known else f"the search failed: {type(error).__name__}: {error}"
            raise
        finally:
            self._ended.set()

    @property
    def running(self) -> bool:
        """Whether it is queued or running."""
        return not self._ended.is_set()

    @property
    def stopped(self) -> bool:
        return self.search.stopped

    def progress(self) -> Progress:
        """Return its state at this moment."""
        return self.search.progress()

    def result(self) -> SearchResult:
        """Return its results so far."""
        version = self.progress().version
        with self._lock:
            if self._drawn is None or self._drawn[0] != version:
                self._drawn = (version, self.search.result())
            return self._drawn[1]

    def stop(self) -> None:
        """Stop it; its results are kept."""
        self.search.stop()
        if not self._began:
            self._ended.set()


class Searches:
    """Starts searches in the pool of a server, one after another, and keeps the last ones.

    Equal requests share a search, which stops when none of its owners wants it any more.
    """

    def __init__(
        self,
        pool: Pool,
        executor: Callable[[], AbstractContextManager[Executor]] = executors.local,
    ) -> None:
        self._pool = pool
        self._executor = executor
        self._lock = threading.Lock()
        self._known: LRUCache[str, Watched] = LRUCache(MOST_KEPT)

    def get(self, request: SearchRequest) -> Watched | None:
        """Return the search of this request, if it runs or its result is known."""
        with self._lock:
            return self._known.get(request.key())

    def of(self, owner: str) -> list[Watched]:
        """Return the searches that an owner began or joined, the newest last."""
        with self._lock:
            return [watched for watched in self._known.values() if owner in watched.owners]

    def start(
        self, request: SearchRequest, requester: Requester = LOCAL, link: Mapping[str, str] | None = None
    ) -> Watched:
        """Start the search of this request, or join the running one.

        Args:
          link: the URL parameters of its page.

        Raises:
          InvalidInput: the owner has too many queued searches, or the server is shutting down.
        """
        layout = request.space.layout
        search = Search(
            request.space,
            request.chip,
            Executor(),  # replaced when it is its turn
            request.budget,
            request.objective,
            request.goal,
            workers=executors.local_workers(),
        )
        subject = Subject(layout_title(layout), layout.target, digest(layout))
        watched = Watched(search, layout, self._run, link)
        job = self._pool.coordinate("search", request.key(), watched, requester, subject, lanes.SEARCHES)
        watched = cast(Watched, job.work)
        with self._lock:
            watched.owners.add(requester.owner)
            self._known[request.key()] = watched
        return watched

    def listed(self, watched: Watched) -> Listed | None:
        """Return the job of a search; None if it has ended or was stopped."""
        return next((job for job in self._pool.jobs() if job.work is watched), None)

    def leave(self, watched: Watched, owner: str) -> None:
        """Withdraw one owner from a search. It stops when no owner is left; its results are kept."""
        job = self.listed(watched)
        if job is not None:
            with contextlib.suppress(InvalidInput):  # it has just ended, or is that of others
                self._pool.cancel(job.number, owner)

    def _run(self, watched: Watched) -> None:
        with self._executor() as executor:
            watched.search.executor = executor
            watched.search.run()


@functools.cache
def shared() -> Searches:
    """Return the searches of this process, whose tasks run on the workers of the server."""
    pool = inspection.shared().pool
    task.share(pool)
    return Searches(pool)
