"""The style of Streamlit's own elements where its theme settings cannot change it.

Most of it gives colors a contrast of WCAG 2 AA. Contrasts are those that axe-core measures. `light-dark`
follows the theme that Streamlit shows.
"""

import contextlib
from collections.abc import Iterator

import streamlit as st

from inspector.media.streamlit.page import page_files

_SENT = "style_sent"  # in the session, whether a run has sent the style


def wordmark() -> str:
    """Return the name of the product as SVG, whose text has the color of the theme also after a change."""
    return page_files.text("wordmark.html").strip()


@contextlib.contextmanager
def around_page() -> Iterator[None]:
    """Add the style to the page that the `with` block draws. It takes no room.

    Each element before a figure delays the figure. The browser keeps the style of the last run until this one
    ends, so only the first run of a session sends it before the page.
    """
    if not st.session_state.get(_SENT):
        st.session_state[_SENT] = True
        st.html(page_files.style("page.css"))
        yield
        return
    try:
        yield
    finally:
        st.html(page_files.style("page.css"))
