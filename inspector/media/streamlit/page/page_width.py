"""The width of the page's content in the browser, for figures whose texts must fit.

Streamlit does not report it, so a small component measures it. The component reports only widths below
the usual one, so the first run of a page with the usual width is final.
"""

from collections.abc import Sequence
from typing import Any, Literal

import streamlit as st

from inspector.media.streamlit.page import page_files

USUAL_PX = 960  # content of a page 1440 pixels wide with an open sidebar
NARROW_PX = 760  # below it, two figures side by side are unreadable
GAP_PX = 24  # between two columns

_STEP_PX = 40  # each report redraws the page


def content_px() -> int:
    """Return the width of the content in pixels, rounded down in steps; the usual width until it is known."""
    measured = st.session_state.get("page_width")
    width = measured.get("width") if measured is not None else None
    if not isinstance(width, (int, float)) or not 200 <= width <= 10_000:
        return USUAL_PX
    return int(width)


def half_px() -> int:
    """Return the width of one of two figures side by side; on a narrow page each has the full width."""
    width = int(content_px())
    return width if width < NARROW_PX else (width - GAP_PX) // 2


def halves() -> tuple[Any, Any]:
    """Return two containers side by side; on a narrow page one below the other."""
    if content_px() < NARROW_PX:
        return st.container(), st.container()
    left, right = st.columns(2, gap="medium")
    return left, right


def beside(
    widths: Sequence[int],
    align: Literal["top", "center", "bottom"] = "bottom",
    least_px: int = NARROW_PX,
) -> Sequence[Any]:
    """Return places of these relative widths, below each other on a page narrower than `least_px`."""
    if content_px() < least_px:
        return [st.container() for _ in widths]
    return st.columns(widths, vertical_alignment=align)


def measure() -> None:
    """Draw the invisible component, at the end of a page."""
    data = {"reported": content_px(), "usual": USUAL_PX, "step": _STEP_PX}
    page_files.component("page_width")(data=data, key="page_width", height=1, on_width_change=lambda: None)
