"""The runs and compiles that this session has of its layouts."""

import streamlit as st
from cachetools import LRUCache

from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.service import known_results
from inspector.service.inspection import Inspection

REMEMBERED_RUNS = 8


def run_of(service: Inspection, layout: Layout) -> Snapshot | None:
    """Return the run of exactly this layout in this session, or else its known results.

    That is its compile from the compile cache, or the result of a search.
    """
    runs = _runs()
    key = layout.key()
    if key not in runs and (known := known_results.of_search(layout, service.compiled)) is not None:
        runs[key] = known
    return runs.get(key)


def remember(layout: Layout, run: Snapshot) -> None:
    """Show this run when the session opens its layout."""
    _runs()[layout.key()] = run


def _runs() -> LRUCache[str, Snapshot]:
    runs: LRUCache[str, Snapshot] = st.session_state.setdefault("finished_runs", LRUCache(REMEMBERED_RUNS))
    return runs
