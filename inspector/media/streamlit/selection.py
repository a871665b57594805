"""Which array the session looks at; every panel that lets a person choose one writes it here."""

from __future__ import annotations

import math

import streamlit as st

from inspector.core.snapshot import Array, Snapshot

KEY = "selected_array"


def selected(found: Snapshot) -> Array:
    """The chosen array, or the largest parameter where the chosen one is not in this Snapshot."""
    by_path = {array.path: array for array in found.arrays}
    chosen = st.session_state.get(KEY)
    if chosen not in by_path:
        params = [array for array in found.arrays if array.group == "params"] or found.arrays
        chosen = max(params, key=_size).path
        st.session_state[KEY] = chosen
    return by_path[chosen]


def _size(array: Array) -> int:
    """Bytes, or elements where the type is not known."""
    elements = 0 if array.shape is None else math.prod(array.shape)
    return array.bytes if array.bytes is not None else elements


def select(path: str | None) -> None:
    """Look at this array from now on; None, or what is no array's path, changes nothing."""
    if path is not None:
        st.session_state[KEY] = path
