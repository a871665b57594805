"""The searches of a server. They go on when a browser is closed, and any session can watch them."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from cachetools import LRUCache

from inspector.compare.search.progress import Progress
from inspector.compare.search.result import Objective, SearchResult
from inspector.compare.search.space import Space
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.layout import Layout
from inspector.machines.hardware import Chip
from inspector.service import audit_log, inspection, serving
from inspector.service.engine import LOCAL, Limits, Requester, Subject
from inspector.service.engine.pool import Event, unreported
from inspector.service.engine.requester import NO_LIMITS
from inspector.service.engine.turns import in_turn
from inspector.service.history import History
from inspector.service.search import executors, task
from inspector.service.search.run import Search
from inspector.service.subject import digest, layout_title

MOST_KEPT = 16  # finished searches
MOST_OWNERS = 4096  # whose last turn is remembered
_KIND = "search"  # in the audit log


@dataclass(frozen=True)
class Request:
    """What identifies a search: equal requests share one."""

    space: Space
    chip: Chip | None
    budget: int
    objective: Objective
    sensitivity: bool = False

    def key(self) -> str:
        """Return text that two requests share only if they are equal."""
        locks = self.space.locks
        return repr(
            (
                self.space.layout.key(),
                self.chip and self.chip.name,
                self.budget,
                self.objective,
                self.sensitivity,
                (locks.mesh, locks.rules, sorted(locks.sizes.items()), locks.logical),
                sorted(self.space.vary.items()),
            )
        )


class Watched:
    """One search of the server: queued, running, finished or failed.

    Its number, subject, requesters and times are guarded by the lock of its `Searches`.
    """

    def __init__(self, search: Search, number: int, subject: Subject, layout: Layout) -> None:
        self.layout = layout
        self.number = number
        self.subject = subject
        self.requesters: list[Requester] = []
        self.submitted = time.monotonic()
        self.began: float | None = None
        self._search = search
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._result: SearchResult | None = None
        self._error: str | None = None
        self._drawn: tuple[int, SearchResult] | None = None

    def run(self, executor: Executor) -> None:
        """Run the search in this thread."""
        self._search.executor = executor
        try:
            self._result = self._search.run()
        except InvalidInput as error:
            self._error = str(error)
            self._result = self._search.result()
        except Exception as error:  # a bug must not leave the page waiting
            self._error = f"the search failed: {type(error).__name__}: {error}"
        finally:
            self._ended.set()

    def end_unstarted(self) -> None:
        """End a search whose turn never came."""
        self._result = self._search.result()
        self._ended.set()

    @property
    def running(self) -> bool:
        """Whether it is queued or running."""
        return not self._ended.is_set()

    @property
    def elapsed(self) -> float | None:
        """Seconds since its turn came; None before that."""
        return None if self.began is None else time.monotonic() - self.began

    @property
    def stopped(self) -> bool:
        return self._search.stopped

    @property
    def error(self) -> str | None:
        """Why it failed, in a sentence."""
        return self._error

    def progress(self) -> Progress:
        """Return its state at this moment."""
        return self._search.progress()

    def result(self) -> SearchResult:
        """Return what it has found so far."""
        if self._result is not None:
            return self._result
        version = self.progress().version
        with self._lock:
            if self._drawn is None or self._drawn[0] != version:
                self._drawn = (version, self._search.result())
            return self._drawn[1]

    def stop(self) -> None:
        """Stop it; what was found is kept."""
        self._search.stop()


@dataclass(frozen=True)
class ListedSearch:
    """A queued or running search at one moment. `place` is its position in the queue; None if it runs."""

    number: int
    subject: Subject
    requesters: tuple[Requester, ...]
    place: int | None
    progress: Progress
    age: float  # seconds since it was started

    def belongs_to(self, owner: str) -> bool:
        """Return whether this owner can stop it. Anyone can if the browser sessions of its owners ended."""
        return not self.requesters or any(one.owner == owner for one in self.requesters)


class Searches:
    """Runs one search after another, because each uses all cores. Owners take turns.

    Equal requests share a search, which stops when none of its owners wants it any more. `on_event` is called
    for each start, end, cancel and refusal, and must return at once. `history` gets the finished searches.
    """

    def __init__(
        self,
        executor: Callable[[], AbstractContextManager[Executor]] = executors.local,
        limits: Limits = NO_LIMITS,
        on_event: Callable[[Event], None] = unreported,
        history: History | None = None,
    ) -> None:
        self._history = history
        self._executor = executor
        self._limits = limits
        self._report = on_event
        self._lock = threading.Condition()  # reentrant; notified when a search ends
        self._numbers = itertools.count(1)
        self._known: LRUCache[str, Watched] = LRUCache(MOST_KEPT)
        self._queue: list[Watched] = []  # in the order of their start
        self._running: Watched | None = None
        self._begun: LRUCache[str, int] = LRUCache(MOST_OWNERS)  # number of the owner's last search
        self._draining = False

    def get(self, request: Request) -> Watched | None:
        """Return the search of this request, if it runs or its result is known."""
        with self._lock:
            return self._known.get(request.key())

    def start(self, request: Request, requester: Requester = LOCAL) -> Watched:
        """Start the search of this request, or join the running one.

        Raises:
          InvalidInput: the owner has too many queued searches, or the server is shutting down.
        """
        layout = request.space.layout
        subject = Subject(layout_title(layout), layout.target, digest(layout))
        with self._lock:
            watched = self._known.get(request.key())
            if watched is None or not watched.running or watched.stopped:
                reason = self._why_refused(requester)
                if reason is not None:
                    self._report(Event("refuse", requester, _KIND, subject, reason))
                    raise InvalidInput(reason)
                search = Search(
                    request.space,
                    request.chip,
                    Executor(),  # replaced when it is its turn
                    request.budget,
                    request.objective,
                    workers=executors.local_workers(),
                    sensitivity=request.sensitivity,
                )
                watched = Watched(search, next(self._numbers), subject, layout)
                self._known[request.key()] = watched
                self._queue.append(watched)
            if requester not in watched.requesters:
                watched.requesters.append(requester)
                if watched is self._running:
                    self._report(Event("start", requester, _KIND, subject))
            self._begin_next()
            return watched

    def leave(self, watched: Watched, owner: str) -> None:
        """Withdraw one owner from a search. It stops when no owner is left; what was found is kept."""
        with self._lock:
            own = [one for one in watched.requesters if one.owner == owner]
            if not watched.running or (watched.requesters and not own):
                return
            for one in own:
                watched.requesters.remove(one)
                self._report_end("cancel", watched, one, "cancelled")
            if not watched.requesters:
                watched.stop()
                if watched in self._queue:
                    self._queue.remove(watched)
                    watched.end_unstarted()

    def cancel(self, number: int, owner: str) -> None:
        """Withdraw one owner from the search with this number.

        Raises:
          InvalidInput: the search has ended, or belongs to others.
        """
        for watched in self._active():
            if watched.number == number:
                owners = {one.owner for one in watched.requesters}
                if owners and owner not in owners:
                    names = ", ".join(one.name for one in watched.requesters)
                    raise InvalidInput(
                        f"search {number} can be stopped only by those who started it: {names}"
                    )
                self.leave(watched, owner)
                return
        raise InvalidInput(f"search {number} has ended")

    def sessions(self) -> set[str]:
        """Return the browser sessions without a signed-in user that own a search."""
        requesters = [one for watched in self._active() for one in watched.requesters]
        return {one.session for one in requesters if one.session and not one.signed_in}

    def forget(self, session: str) -> None:
        """Disown the searches of a browser session that has ended. They go on."""
        with self._lock:
            for watched in self._active():
                watched.requesters[:] = [
                    one for one in watched.requesters if one.session != session or one.signed_in
                ]

    def listed(self) -> tuple[ListedSearch, ...]:
        """Return the running search and the queued ones, in the order in which they begin."""
        now = time.monotonic()
        with self._lock:
            running = [self._running] if self._running is not None else []
            return tuple(
                ListedSearch(
                    one.number,
                    one.subject,
                    tuple(one.requesters),
                    place or None,
                    one.progress(),
                    now - one.submitted,
                )
                for place, one in enumerate([*running, *self._in_turn()], 1 - len(running))
            )

    def place(self, watched: Watched) -> int | None:
        """Return the position of a search in the queue, from 1; None if it is not queued."""
        with self._lock:
            return self._in_turn().index(watched) + 1 if watched in self._queue else None

    def drain(self, seconds: float) -> bool:
        """Start no more searches, and wait for the running one. Return whether it ended in this time.

        What a stopped search has found is kept: the same search continues from there.
        """
        with self._lock:
            self._draining = True
            for watched in self._queue:
                watched.stop()
                watched.end_unstarted()
            self._queue.clear()
            return self._lock.wait_for(lambda: self._running is None, seconds)

    def _active(self) -> list[Watched]:
        with self._lock:
            return [*self._queue, *([self._running] if self._running is not None else [])]

    # The lock is held in all of these.

    def _why_refused(self, requester: Requester) -> str | None:
        if self._draining:
            return "the server is shutting down and starts no new searches"
        most = self._limits.queued
        own = [
            watched
            for watched in self._queue
            if any(one.owner == requester.owner for one in watched.requesters)
        ]
        if most is None or requester.owner == LOCAL.owner or len(own) < most:
            return None
        return (
            f"{counted(most, 'search', 'searches')} of yours already {'waits' if most == 1 else 'wait'} in "
            "the queue, the most allowed: wait until one begins, or cancel one on the Jobs page"
        )

    def _in_turn(self) -> list[Watched]:
        # Searches without an owner take turns as if they had one together.
        owners = [[one.owner for one in watched.requesters] or [""] for watched in self._queue]
        return [self._queue[index] for index in in_turn(owners, {}, self._begun)]

    def _begin_next(self) -> None:
        if self._running is not None or not self._queue:
            return
        watched = self._running = self._in_turn()[0]
        self._queue.remove(watched)
        watched.began = time.monotonic()
        for one in watched.requesters:
            self._begun[one.owner] = watched.number
            self._report(Event("start", one, _KIND, watched.subject))
        threading.Thread(target=self._run, args=(watched,), name="search", daemon=True).start()

    def _report_end(
        self,
        event: Literal["end", "cancel"],
        watched: Watched,
        requester: Requester,
        outcome: str,
    ) -> None:
        self._report(Event(event, requester, _KIND, watched.subject, outcome, watched.elapsed))

    # The thread of a search.

    def _run(self, watched: Watched) -> None:
        try:
            with self._executor() as executor:
                watched.run(executor)
        finally:
            outcome = "failed" if watched.error else "cancelled" if watched.stopped else "done"
            self._record(watched)
            with self._lock:
                for one in watched.requesters:
                    self._report_end("end", watched, one, outcome)
                self._running = None
                if not self._draining:
                    self._begin_next()
                self._lock.notify_all()

    def _record(self, watched: Watched) -> None:
        if self._history is None or watched.error or not watched.result().candidates:
            return
        with self._lock:
            owners = {one.owner if one.signed_in else None: one for one in watched.requesters}
        for one in owners.values() or [LOCAL]:
            self._history.record_search(watched.layout, watched.result(), one)


@functools.cache
def shared() -> Searches:
    """Return the searches of this process, whose tasks run on the workers of the server."""
    task.share(inspection.shared().pool)
    limits = serving.current().limits
    return Searches(limits=limits, on_event=audit_log.shared().job, history=History())
