"""Files beside the pages: texts, styles and components, and the style of every page."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import streamlit as st


@functools.cache
def text(name: str) -> str:
    """Return the text of a file next to this module."""
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def style(name: str) -> str:
    """Return a style sheet as an HTML element."""
    return f"<style>{text(name)}</style>"


@functools.cache
def component(name: str) -> Callable[..., Any]:
    """Return the invisible component with the script `NAME.js`."""
    return st.components.v2.component(name, html="<span></span>", js=text(f"{name}.js"))


# The style of Streamlit's own elements where its theme settings cannot change it.
#
# Most of it gives colors a contrast of WCAG 2 AA. Contrasts are those that axe-core measures. `light-dark`
# follows the theme that Streamlit shows.


_SENT = "style_sent"  # in the session, whether a run has sent the style


def wordmark() -> str:
    """Return the name of the product as SVG, whose text has the color of the theme also after a change."""
    return text("wordmark.html").strip()


@contextlib.contextmanager
def around_page() -> Iterator[None]:
    """Add the style to the page that the `with` block draws. It takes no room.

    Each element before a figure delays the figure. The browser keeps the style of the last run until this one
    ends, so only the first run of a session sends it before the page.
    """
    if not st.session_state.get(_SENT):
        st.session_state[_SENT] = True
        st.html(style("page.css"))
        yield
        return
    try:
        yield
    finally:
        st.html(style("page.css"))
