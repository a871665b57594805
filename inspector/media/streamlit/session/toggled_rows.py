"""The subtrees that a user has opened or closed in a tree of arrays."""

from collections.abc import Collection, Iterable

import streamlit as st
from cachetools import LRUCache

from inspector.core.snapshot import Array
from inspector.media.streamlit.session import selection

CAPTION = "Click a subtree to open or close it, or an array to select it for the shard map."
_MOST_TREES = 16  # of other models or parts of the state, whose open subtrees a session keeps


class ToggledRows:
    """The rows of a tree that differ from how it is first drawn.

    A tree of other arrays has its own rows: a subtree that is first drawn open in one model can be first
    drawn closed in another.
    """

    def __init__(self, tree: str, arrays: Iterable[Array]) -> None:
        self._paths = frozenset(array.path for array in arrays)
        self._trees: LRUCache[frozenset[str], frozenset[str]] = st.session_state.setdefault(
            f"{tree}-toggled-rows", LRUCache(_MOST_TREES)
        )

    def keys(self) -> Collection[str]:
        """Return the keys of the rows."""
        return self._trees.get(self._paths, frozenset())

    def pick(self, row: object) -> None:
        """Handle a click on a row: select an array, or open or close a subtree."""
        if not isinstance(row, str):  # the browser can send anything
            return
        if row in self._paths:
            selection.select(row)
        else:
            self._trees[self._paths] = frozenset(self.keys()) ^ {row}
