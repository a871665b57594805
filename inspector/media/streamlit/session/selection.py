"""The array that the session has selected, and the subtrees it has opened. All panels share them."""

from collections.abc import Collection, Iterable, Sequence

import streamlit as st
from cachetools import LRUCache

from inspector.media.streamlit.session import kept_field
from inspector.records.snapshot import Array, Snapshot
from inspector.text.printable import one_line

KEY = "selected_array"
VIEW_KEY = "arrays_view"  # how the tab *Arrays* shows them
TABS_KEYS = ("panel", "opened_panel")  # of the tabs of the pages *Layout* and *Open*


def selected(snapshot: Snapshot) -> Array:
    """Return the selected array, or the largest parameter if the Snapshot does not contain it."""
    by_path = {array.path: array for array in snapshot.arrays}
    path = st.session_state.get(KEY)
    if path not in by_path:
        path = largest_parameter(snapshot).path
        st.session_state[KEY] = path
    return by_path[path]


def largest_parameter(snapshot: Snapshot) -> Array:
    """Return the largest parameter, or the largest array if there are no parameters."""
    params = [array for array in snapshot.arrays if array.group == "params"] or snapshot.arrays
    return max(params, key=lambda array: (array.bytes or 0, array.elements or 0))


def draw(paths: Sequence[str]) -> None:
    """Draw the choice of an array. `paths` contain the selected one."""
    kept_field.draw(
        st.selectbox,
        "Array",
        paths,
        format_func=one_line,
        key=KEY,
        label_visibility="collapsed",
    )


def select(path: str | None) -> None:
    """Select an array. None changes nothing."""
    if path is not None:
        st.session_state[KEY] = path


def open_map(path: str) -> None:
    """Select an array, and open the tab *Arrays*, which begins with its shard map."""
    select(path)
    open_tab("Arrays")


def open_tab(name: str) -> None:
    """Open a tab of the page."""
    for key in TABS_KEYS:
        if key in st.session_state:
            st.session_state[key] = name


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
            select(row)
        else:
            self._trees[self._paths] = frozenset(self.keys()) ^ {row}
