"""Which dialog of a browser session is open.

A dialog disappears when the page is redrawn without it, for example at the end of a propagation in the
background. So its function is called in each redraw, until the user closes it. One dialog can be open.
"""

from __future__ import annotations

import streamlit as st

_KEY = "open_dialog"


def draw_button(label: str, icon: str, dialog: str, *, key: str, help: str | None = None) -> None:
    """Draw a button that opens the dialog with the key `dialog`, and closes another one.

    A callback runs before the redraw, so the click also counts if another redraw interrupts this one.
    """
    st.button(
        label, key=key, icon=icon, type="tertiary", help=help, on_click=_set_open, args=(dialog,)
    )


def _set_open(dialog: str) -> None:
    st.session_state[_KEY] = dialog


def is_open(key: str) -> bool:
    """Return whether the dialog with this key is open."""
    return bool(st.session_state.get(_KEY) == key)


def close() -> None:
    """Close the open dialog in the next redraw. A dialog calls it as `on_dismiss`."""
    st.session_state.pop(_KEY, None)
