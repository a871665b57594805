"""Which dialog of a browser session is open.

A dialog disappears when the page is redrawn without it, for example at the end of a propagation in the
background. So its function is called in each redraw, until the user closes it. One dialog can be open.
"""

from __future__ import annotations

import streamlit as st

_KEY = "open_dialog"


def set_open(key: str) -> None:
    """Open the dialog with this key, and close another one. A button calls it as `on_click`.

    A callback runs before the redraw, so the click also counts if another redraw interrupts this one.
    """
    st.session_state[_KEY] = key


def is_open(key: str) -> bool:
    """Return whether the dialog with this key is open."""
    return bool(st.session_state.get(_KEY) == key)


def close() -> None:
    """Close the open dialog in the next redraw. A dialog calls it as `on_dismiss`."""
    st.session_state.pop(_KEY, None)
