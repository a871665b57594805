"""Buttons with an icon that call a function or open a dialog.

What went wrong in one is shown once, by the next run. A dialog disappears when the page is redrawn without
it, for example at the end of a job in the background. So its function is called in each redraw,
until the user closes it. One dialog can be open.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import streamlit as st

from inspector.media.streamlit.page import page_files
from inspector.media.streamlit.page.plain_text import plain
from inspector.text.errors import InvalidInput

_PROBLEM = "last_problem"


def draw(label: str, key: str, icon: str, act: Callable[..., Any], *arguments: Any, **settings: Any) -> None:
    """Draw a button that calls `act` with the arguments before the next run of the page.

    Args:
      icon: its name among the Material Symbols.
      settings: those of `st.button`.
    """
    icon = f":material/{icon}:"
    st.button(label, key=key, icon=icon, on_click=act, args=arguments, **settings)


@contextlib.contextmanager
def keep_problem() -> Iterator[None]:
    """Keep the message if the `with` block raises InvalidInput."""
    try:
        yield
    except InvalidInput as error:
        st.session_state[_PROBLEM] = str(error)


def show_problem() -> None:
    """Draw the message that was kept last."""
    if problem := st.session_state.pop(_PROBLEM, None):
        st.error(plain(problem), icon=":material/error:")


_DIALOG = "open_dialog"


def draw_with_dialog(
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
    draw(label, key, icon, _set_open, dialog, type="tertiary", help=help)
    if st.session_state.get(_DIALOG) == dialog:

        @st.dialog(title, width=width, icon=f":material/{icon}:", on_dismiss=close_dialog)
        def show() -> None:
            content()
            page_files.component("dialog_escape")(key="dialog_escape", width=1, height=1)

        show()


def _set_open(dialog: str) -> None:
    st.session_state[_DIALOG] = dialog


def open_dialog() -> str | None:
    """Return what identifies the open dialog. A popover with it in its key closes when its dialog opens."""
    return st.session_state.get(_DIALOG)


def close_dialog() -> None:
    """Close the open dialog in the next redraw."""
    st.session_state.pop(_DIALOG, None)
