"""From one page to another in the same session."""

from __future__ import annotations

from typing import NoReturn

import streamlit as st

LAYOUT = ""  # the first page's path


def to(url_path: str) -> NoReturn:
    """Leave this run and open the page of this path. Streamlit knows pages by their paths alone."""
    st.switch_page(
        st.Page(_never, title="page", url_path=url_path or None, default=url_path == LAYOUT)
    )


def _never() -> None:
    raise AssertionError("the page that is registered under the path is shown")
