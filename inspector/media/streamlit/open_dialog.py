"""Which dialog of a browser session is open.

A dialog disappears when the page is redrawn without it, for example at the end of a propagation in the
background. So its function is called in each redraw, until the user closes it. One dialog can be open.
"""

from __future__ import annotations

import streamlit as st

_KEY = "open_dialog"


def set_open(key: str) -> None:
    """Open the dialog with this key, in this redraw and the next ones. Another one is closed."""
    other = st.session_state.get(_KEY)
    st.session_state[_KEY] = key
    if other not in (None, key):
        st.rerun()  # this redraw may have drawn it, and Streamlit allows one


def is_open(key: str) -> bool:
    """Return whether the dialog with this key is open."""
    return bool(st.session_state.get(_KEY) == key)


def close() -> None:
    """Close the open dialog in the next redraw. A dialog calls it as `on_dismiss`."""
    st.session_state.pop(_KEY, None)
