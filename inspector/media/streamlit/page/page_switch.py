"""Links and switches to other pages of the session, and the back and forward buttons of the browser.

The browser applies a URL after it has drawn the figures. A click before that sends the previous URL, as the
back button does. Only the browser knows which of the two it was.

Streamlit says so of the run that the button causes. If a click or a component's value arrives before that run
has read the URL, the next run has the same URL, and Streamlit no longer says it: it also drops a trigger of a
run that does not begin. So the page counts the presses in a value, which each of its later messages has.
"""

import itertools
from typing import NoReturn

import streamlit as st

from inspector.media.streamlit.page import page_files
from inspector.media.streamlit.streamlit_internals import StreamlitPage, is_history_navigation, query_string

LAYOUT, BOARD, OPEN, SEARCH, ACCURACY = "", "board", "open", "search", "accuracy"  # URL paths
_KEY = "page_switch"
_NEXT = "page_of_next_run"
_runs = itertools.count()


def page(url_path: str) -> StreamlitPage:
    """Return the page with this path. Streamlit identifies a registered page by its path alone."""
    return st.Page(_unregistered, title="page", url_path=url_path or None, default=url_path == LAYOUT)


def to(url_path: str) -> NoReturn:
    """Stop this run and open the page with this path."""
    st.switch_page(page(url_path))


def in_next_run(url_path: str) -> None:
    """Open the page with this path in the next run, because a callback cannot switch pages."""
    st.session_state[_NEXT] = url_path


def follow() -> None:
    """Open the page of the last `in_next_run`, if it was called since the last run."""
    if (url_path := st.session_state.pop(_NEXT, None)) is not None:
        to(url_path)


def join_entries(url_path: str) -> None:
    """Draw the invisible component that makes a page and its URL one entry of the browser's history.

    Draw it at the end of a page, whose URL the browser then has if *Back* or *Forward* opened it.
    """
    # With a number, the browser notices each run.
    data = {"run": next(_runs), "page": url_path, "query": query_string()}
    component = page_files.component("page_switch")
    component(data=data, key=_KEY, width=1, height=1, on_presses_change=lambda: None)


def presses() -> object:
    """Return how often *Back* or *Forward* has changed the URL of the same page, None if nothing says so."""
    return (st.session_state.get(_KEY) or {}).get("presses")


def _unregistered() -> None:
    raise AssertionError("Streamlit runs the registered page with this path")


_READ = "back_button_read"  # the count of the page at the end of the last run


def was_pressed() -> bool:
    """Return whether one of them has given the page its URL, and no run of its script has ended since."""
    return is_history_navigation() or presses() not in (None, st.session_state.get(_READ))


def forget_press() -> None:
    """Forget it at the end of a run."""
    if (count := presses()) is not None:
        st.session_state[_READ] = count
