"""The searches of a server. They go on when a browser is closed, and any session can watch them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass

from cachetools import LRUCache

from inspector.core.errors import InvalidInput
from inspector.machines.hardware import Chip
from inspector.search.progress import Progress
from inspector.search.result import Objective, SearchResult
from inspector.search.space import Space
from inspector.service.search import executors
from inspector.service.search.run import Search

MOST_KEPT = 16  # finished searches


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
    """One search of the server: running, finished or failed."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._result: SearchResult | None = None
        self._error: str | None = None
        self._drawn: tuple[int, SearchResult] | None = None

    def run(self) -> None:
        """Run the search in this thread."""
        try:
            self._result = self._search.run()
        except InvalidInput as error:
            self._error = str(error)
            self._result = self._search.result()
        except Exception as error:  # a bug must not leave the page waiting
            self._error = f"the search failed: {type(error).__name__}: {error}"
        finally:
            self._ended.set()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

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


class Searches:
    """Runs one search after another, because each uses all cores."""

    def __init__(
        self, executor: Callable[[], AbstractContextManager[Executor]] = executors.local
    ) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._known: LRUCache[str, Watched] = LRUCache(MOST_KEPT)

    def get(self, request: Request) -> Watched | None:
        """Return the search of this request, if it runs or its result is known."""
        with self._lock:
            return self._known.get(request.key())

    def start(self, request: Request) -> Watched:
        """Start the search of this request, or return the running one."""
        with self._lock:
            known = self._known.get(request.key())
            if known is not None and known.running and not known.stopped:
                return known
            search = Search(
                request.space,
                request.chip,
                Executor(),  # replaced when it is its turn
                request.budget,
                request.objective,
                workers=executors.local_workers(),
                sensitivity=request.sensitivity,
            )
            watched = self._known[request.key()] = Watched(search)
        thread = threading.Thread(
            target=self._run, args=(search, watched), name="search", daemon=True
        )
        thread.start()
        return watched

    def _run(self, search: Search, watched: Watched) -> None:
        with self._turn, self._executor() as executor:
            search.executor = executor
            watched.run()


@functools.cache
def shared() -> Searches:
    """Return the searches of this process."""
    return Searches()
