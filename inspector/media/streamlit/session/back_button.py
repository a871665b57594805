"""The back and forward buttons of the browser.

The browser applies a URL after it has drawn the figures. A click before that sends the previous URL, as the
back button does. Only the browser knows which of the two it was.

Streamlit says so of the run that the button causes. If a click or a component's value arrives before that run
has read the URL, the next run has the same URL, and Streamlit no longer says it: it also drops a trigger of a
run that does not begin. So the page counts the presses in a value, which each of its later messages has.
"""

import streamlit as st

from inspector.media.streamlit.page import page_switch
from inspector.media.streamlit.streamlit_internals import is_history_navigation

_READ = "back_button_read"  # the count of the page at the end of the last run


def pressed() -> bool:
    """Return whether one of them has given the page its URL, and no run of its script has ended since."""
    return is_history_navigation() or page_switch.presses() not in (None, st.session_state.get(_READ))


def forget() -> None:
    """Forget it at the end of a run."""
    if (presses := page_switch.presses()) is not None:
        st.session_state[_READ] = presses
