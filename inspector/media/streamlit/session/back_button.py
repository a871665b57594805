"""The back and forward buttons of the browser.

The browser applies a URL after it has drawn the figures. A click before that sends the previous URL, as the
back button does. Only the browser knows which of the two it was.

Streamlit says so of the run that the button causes. If a click or a component's value arrives before that run
has read the URL, the next run has the same URL, and Streamlit no longer says it. So the page says it too, and
it is kept until a run has come to its end.
"""

import streamlit as st

from inspector.media.streamlit.streamlit_internals import is_history_navigation

_PRESSED = "back_button_pressed"


def note() -> None:
    """Note in a callback that one of them was pressed and has changed the URL of the same page."""
    st.session_state[_PRESSED] = True


def pressed() -> bool:
    """Return whether one of them has given the page its URL, and no run of its script has ended since."""
    return is_history_navigation() or _PRESSED in st.session_state


def forget() -> None:
    """Forget it at the end of a run."""
    st.session_state.pop(_PRESSED, None)
