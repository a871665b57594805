"""The searches of a server. They go on when a browser is closed, and any session can watch them."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

from cachetools import LRUCache

from inspector.jobs import inspection, lanes, serving
from inspector.jobs.engine import LOCAL, JobSubject, Requester
from inspector.jobs.engine.pool import Event, unreported
from inspector.jobs.request import digest, layout_title
from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.search import tasks
from inspector.search.order import Goal
from inspector.search.result import Objective, SearchProgress, SearchResult
from inspector.search.run import Search
from inspector.search.space import Space
from inspector.text.errors import InvalidInput

MOST_KEPT = 16  # the searches last started

_log = logging.getLogger(__name__)


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
    """One search of the server: queued, running, finished or failed.

    Attributes:
      link: the URL parameters of the page that began it.
      owners: who began or joined it, by their names in `Requester.owner`.
      wanted_by: the owners who have not left it.
      error: why it failed, in a sentence; None if it did not.
    """

    def __init__(self, search: Search, layout: Layout, link: Mapping[str, str] | None = None) -> None:
        self.layout = layout
        self.search = search
        self.link = dict(link or {})
        self.owners: dict[str, Requester] = {}
        self.wanted_by: set[str] = set()
        self.error: str | None = None
        self._lock = threading.Lock()
        self._began: float | None = None  # on the monotonic clock
        self._ended = threading.Event()
        self._drawn: tuple[int, SearchResult] | None = None

    def run(self, executor: Callable[[], AbstractContextManager[Executor]]) -> None:
        """Run the search in this thread. `error` is why it failed."""
        self._began = time.monotonic()
        try:
            with executor() as self.search.executor:
                self.search.run()
        except InvalidInput as error:
            self.error = str(error)
        except Exception as error:  # a bug must not leave the page waiting
            self.error = f"the search failed: {type(error).__name__}: {error}"
            _log.debug("A search failed.", exc_info=True)
        finally:
            self._ended.set()

    def join(self, requester: Requester) -> None:
        self.owners[requester.owner] = requester
        self.wanted_by.add(requester.owner)

    @property
    def running(self) -> bool:
        """Whether it is queued or running."""
        return not self._ended.is_set()

    @property
    def elapsed(self) -> float:
        """Seconds since it began; 0 while it waits."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def stopped(self) -> bool:
        return self.search.stopped

    def progress(self) -> SearchProgress:
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
        if self._began is None:
            self._ended.set()


class Searches:
    """Runs the searches of a server, one after another, and keeps the last ones.

    A search uses all cores. It goes on when a browser is closed. Equal requests share a search, which stops
    when none of its owners wants it any more. `on_event` is called for each start and end.
    """

    def __init__(
        self,
        executor: Callable[[], AbstractContextManager[Executor]] = tasks.local,
        on_event: Callable[[Event], None] = unreported,
    ) -> None:
        self._executor = executor
        self._on_event = on_event
        self._lock = threading.Lock()
        self._known: LRUCache[str, Watched] = LRUCache(MOST_KEPT)
        self._queue: list[Watched] = []  # the first one runs
        self._works = False  # whether a thread takes them from the queue

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
          InvalidInput: the owner has too many searches.
        """
        with self._lock:
            known = self._known.get(request.key())
            if known is not None and known.running and not known.stopped:
                known.join(requester)
                return known
            own = [watched for watched in self._queue if requester.owner in watched.wanted_by]
            if len(own) >= lanes.MOST_JOBS and requester.owner != LOCAL.owner:
                raise InvalidInput(
                    f"{lanes.MOST_JOBS} searches of yours already wait or run, the most allowed: wait until "
                    "one ends, or cancel one"
                )
            layout = request.space.layout
            search = Search(
                request.space,
                request.chip,
                Executor(),  # replaced when it is its turn
                request.budget,
                request.objective,
                request.goal,
                workers=tasks.local_workers(),
            )
            watched = self._known[request.key()] = Watched(search, layout, link)
            watched.join(requester)
            self._queue.append(watched)
            if not self._works:
                self._works = True
                threading.Thread(target=self._work, name="searches", daemon=True).start()
            return watched

    def place(self, watched: Watched) -> int:
        """Return how many searches end before this one begins."""
        with self._lock:
            return self._queue.index(watched) if watched in self._queue else 0

    def leave(self, watched: Watched, owner: str) -> None:
        """Withdraw one owner from a search. It stops when no owner is left; its results are kept."""
        with self._lock:
            watched.wanted_by.discard(owner)
            if not watched.wanted_by:
                watched.stop()

    def _work(self) -> None:
        """Run the searches in the queue until it is empty."""
        while True:
            with self._lock:
                if not self._queue:
                    self._works = False
                    return
                watched = self._queue[0]
            if watched.running:
                self._report("start", watched)
                watched.run(self._executor)
                outcome = "failed" if watched.error else "cancelled" if watched.stopped else "done"
                self._report("end", watched, outcome, watched.elapsed)
            with self._lock:
                del self._queue[0]

    def _report(
        self,
        event: Literal["start", "end"],
        watched: Watched,
        outcome: str | None = None,
        seconds: float | None = None,
    ) -> None:
        subject = JobSubject(layout_title(watched.layout), watched.layout.target, digest(watched.layout))
        for requester in list(watched.owners.values()):
            self._on_event(Event(event, requester, "search", subject, outcome, seconds))


@functools.cache
def shared() -> Searches:
    """Return the searches of this process, whose tasks run on the workers of the server."""
    tasks.share(inspection.shared().pool)
    return Searches(on_event=serving.shared().job)
