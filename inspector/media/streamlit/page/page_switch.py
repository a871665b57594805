"""Links and switches to other pages of the session."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from inspector.media.streamlit.page import page_files

LAYOUT, BOARD, OPEN, SEARCH, ACCURACY = "", "board", "open", "search", "accuracy"  # URL paths


def page(url_path: str) -> StreamlitPage:
    """Return the page with this path. Streamlit identifies a registered page by its path alone."""
    return st.Page(
        _unregistered, title="page", url_path=url_path or None, default=url_path == LAYOUT
    )


def to(url_path: str) -> NoReturn:
    """Stop this run and open the page with this path."""
    st.switch_page(page(url_path))


def join_entries() -> None:
    """Draw the invisible component that makes a page and its URL one entry of the browser's history."""
    _component()(key="page_switch", width=1, height=1)


@functools.cache
def _component() -> Callable[..., Any]:
    return st.components.v2.component(
        "page_switch", html="<span></span>", js=page_files.text("page_switch.js")
    )


def _unregistered() -> None:
    raise AssertionError("Streamlit runs the registered page with this path")
