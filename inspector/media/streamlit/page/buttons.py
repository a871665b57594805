"""Buttons with an icon that call a function, and what went wrong in one, which the next run shows once."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import streamlit as st

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
