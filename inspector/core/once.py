"""Compute something once for each Snapshot that is in use."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TypeVar

from inspector.core.snapshot import Snapshot

T = TypeVar("T")


def once_per_snapshot(compute: Callable[[Snapshot], T]) -> Callable[[Snapshot], T]:
    """Return the function, which keeps the result for each Snapshot as long as that exists.

    Snapshots are told apart by identity: to compare or hash one takes longer than most of what is computed.

    >>> from inspector.core.snapshot import Source
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
