"""Links and switches to other pages of the session."""

import itertools
from typing import NoReturn

import streamlit as st

from inspector.media.streamlit.page import page_files
from inspector.media.streamlit.streamlit_internals import StreamlitPage, query_string

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
