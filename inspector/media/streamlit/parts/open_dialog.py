"""Which dialog of a browser session is open.

A dialog disappears when the page is redrawn without it, for example at the end of a propagation in the
background. So its function is called in each redraw, until the user closes it. One dialog can be open.
"""

from collections.abc import Callable
from typing import Literal

import streamlit as st

from inspector.media.streamlit.page import buttons, page_files

_KEY = "open_dialog"


def draw(
    label: str,
    icon: str,
    title: str,
    content: Callable[[], None],
    dialog: str,
    *,
    key: str,
    width: Literal["small", "large"] = "small",
    help: str | None = None,
) -> None:
    """Draw a button that opens a dialog and closes another one, and the dialog if it is open.

    A callback runs before the redraw, so the click also counts if another redraw interrupts this one.

    Args:
      icon: that of both, by its name among the Material Symbols.
      dialog: identifies the dialog in the session.
      key: that of the button.
    """
    buttons.draw(label, key, icon, _set_open, dialog, type="tertiary", help=help)
    if st.session_state.get(_KEY) == dialog:

        @st.dialog(title, width=width, icon=f":material/{icon}:", on_dismiss=close)
        def show() -> None:
            content()
            page_files.component("dialog_escape")(key="dialog_escape", width=1, height=1)

        show()


def _set_open(dialog: str) -> None:
    st.session_state[_KEY] = dialog


def name() -> str | None:
    """Return what identifies the open dialog. A popover with it in its key closes when its dialog opens."""
    return st.session_state.get(_KEY)


def close() -> None:
    """Close the open dialog in the next redraw."""
    st.session_state.pop(_KEY, None)
