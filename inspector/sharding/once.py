"""Compute something once for each Snapshot that is in use, or for the same objects."""

import functools
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

from inspector.records.snapshot import Snapshot

T = TypeVar("T")


def once_per_snapshot(compute: Callable[[Snapshot], T]) -> Callable[[Snapshot], T]:
    """Return the function, which keeps the result for each Snapshot as long as that exists.

    Snapshots are distinguished by identity: comparing or hashing one takes longer than most computations.

    >>> from inspector.records.snapshot import Source
    >>> empty = Snapshot(Source("plan", None, "2026-01-01"), None, None, ())
    >>> names = once_per_snapshot(lambda snapshot: [program.name for program in snapshot.programs])
    >>> names(empty) is names(empty)
    True
    """
    known: weakref.WeakValueDictionary[int, Snapshot] = weakref.WeakValueDictionary()
    results: dict[int, T] = {}

    @functools.wraps(compute)
    def computed(snapshot: Snapshot) -> T:
        identity = id(snapshot)
        if known.get(identity) is not snapshot:
            result = compute(snapshot)
            weakref.finalize(snapshot, results.pop, identity, None)
            known[identity], results[identity] = snapshot, result
        return results[identity]

    return computed


class NewestResults(Generic[T]):
    """Keeps the newest results of a computation, each with its inputs.

    Objects are distinguished by identity, as in `once_per_snapshot`. An equal request then gets the same
    Snapshot, so all that is computed once per Snapshot is kept, too.

    >>> sums = NewestResults[list](most=2)
    >>> numbers = [1, 2]
    >>> sums.of("sum", (numbers,), lambda: [sum(numbers)]) is sums.of("sum", (numbers,), lambda: [])
    True
    >>> sums.of("sum", ([1, 2],), lambda: [])  # an equal list is another object
    []
    """

    def __init__(self, most: int) -> None:
        self._results: LRUCache[Hashable, tuple[tuple[object, ...], T]] = LRUCache(most)
        self._lock = threading.Lock()

    def of(self, key: Hashable, parts: tuple[object, ...], compute: Callable[[], T]) -> T:
        """Return the result for a key and the same `parts`, computed at most once while it is kept."""
        identity = key, tuple(map(id, parts))
        with self._lock:
            known = self._results.get(identity)
        if known is not None:
            return known[1]
        result = compute()
        with self._lock:  # an entry keeps `parts`, so no other object gets their identities
            return self._results.setdefault(identity, (parts, result))[1]
