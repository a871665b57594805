"""The subtrees that a user has opened or closed in a tree of arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection

import streamlit as st

from inspector.media.streamlit.session import selection

CAPTION = "Click a subtree to open or close it, or an array to select it for the shard map."


def of(tree: str) -> Collection[str]:
    """Return the keys of the rows that differ from how this tree is first drawn."""
    return st.session_state.get(_key(tree), frozenset())


def on_pick(tree: str, paths: Collection[str]) -> Callable[[object], None]:
    """Return what a click on a row of this tree does: select an array, or open or close a subtree.

    Args:
      paths: those of the arrays.
    """

    def pick(row: object) -> None:
        if not isinstance(row, str):  # the browser can send anything
            return
        if row in paths:
            selection.select(row)
        else:
            st.session_state[_key(tree)] = frozenset(of(tree)) ^ {row}

    return pick


def _key(tree: str) -> str:
    return f"{tree}-toggled-rows"
