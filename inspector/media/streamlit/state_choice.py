"""Which part of the train state a panel shows."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Array, Snapshot
from inspector.core.totals import STATE_GROUPS

WHOLE = "Whole train state"
PARTS = {
    "Parameters": ("params",),
    "Optimizer state": ("opt_state",),
    WHOLE: STATE_GROUPS,
}


def choose(found: Snapshot, key: str, whole_first: bool = False) -> list[Array]:
    """Ask, and give the arrays of that part."""
    there = {array.group for array in found.arrays}
    names = [name for name, groups in PARTS.items() if there.intersection(groups)] or [WHOLE]
    if st.session_state.get(key) not in names:
        st.session_state[key] = names[-1] if whole_first else names[0]
    part = st.segmented_control(
        "Part of the train state", names, key=key, required=True, label_visibility="collapsed"
    )
    return [array for array in found.arrays if array.group in PARTS[part]]
