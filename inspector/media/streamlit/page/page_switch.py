"""Links and switches to other pages of the session."""

from __future__ import annotations

from typing import NoReturn

import streamlit as st
from streamlit.navigation.page import StreamlitPage

LAYOUT, BOARD, OPEN, SEARCH, ACCURACY = "", "board", "open", "search", "accuracy"  # URL paths


def page(url_path: str) -> StreamlitPage:
    """Return the page with this path. Streamlit identifies a registered page by its path alone."""
    return st.Page(
        _unregistered, title="page", url_path=url_path or None, default=url_path == LAYOUT
    )


def to(url_path: str) -> NoReturn:
    """Stop this run and open the page with this path."""
    st.switch_page(page(url_path))


def _unregistered() -> None:
    raise AssertionError("Streamlit runs the registered page with this path")
