"""What went wrong in a callback, which the next run of the page shows once."""

import contextlib
from collections.abc import Iterator

import streamlit as st

from inspector.media.streamlit.page.plain_text import plain
from inspector.text.errors import InvalidInput

_KEY = "last_problem"


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep the message if the `with` block raises InvalidInput."""
    try:
        yield
    except InvalidInput as error:
        st.session_state[_KEY] = str(error)


def show() -> None:
    """Draw the message that was kept last."""
    if problem := st.session_state.pop(_KEY, None):
        st.error(plain(problem), icon=":material/error:")
