"""How wide the page's content is in this browser, for figures whose texts must fit.

Streamlit does not say, so a small component measures its own place. It reports only where the page is
narrower than usual: the first run of a page at a usual width stands as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import streamlit as st

USUAL_PX = 960  # the content of a page 1440 wide with the sidebar open
NARROW_PX = 760  # below it two figures side by side cannot be read
GAP_PX = 24  # between two columns

_STEP_PX = 40  # a report for every pixel would redraw the page all along a resize
_MEASURE = """
export default function ({ parentElement, setStateValue, data }) {
  // Styles are isolated in a shadow root, which has no size of its own.
  const place = parentElement.host ?? parentElement
  let told = data.told
  const measure = () => {
    const exact = place.getBoundingClientRect().width
    if (exact === 0) return
    const width = exact >= data.usual * 0.95 ? data.usual : Math.floor(exact / data.step) * data.step
    if (width !== told) {
      told = width
      setStateValue("width", width)
    }
  }
  let timer
  const observer = new ResizeObserver(() => {
    clearTimeout(timer)
    timer = setTimeout(measure, 150)
  })
  observer.observe(place)
  measure()
  return () => {
    clearTimeout(timer)
    observer.disconnect()
  }
}
"""


def content_px() -> int:
    """The width of the page's content in pixels, in steps; the usual width until it is known."""
    measured = st.session_state.get("page_width")
    width = measured.get("width") if measured is not None else None
    return width if isinstance(width, (int, float)) and 200 <= width <= 10_000 else USUAL_PX


def half_px() -> int:
    """The width of a figure that stands beside another, or alone where the page is narrow."""
    width = int(content_px())
    return width if width < NARROW_PX else (width - GAP_PX) // 2


def halves() -> tuple[Any, Any]:
    """Two places side by side, one under the other where the page is narrow."""
    if content_px() < NARROW_PX:
        return st.container(), st.container()
    left, right = st.columns(2, gap="medium")
    return left, right


def beside(widths: Sequence[int], align: Literal["top", "bottom"] = "bottom") -> Sequence[Any]:
    """Return places of these relative widths, below each other on a narrow page."""
    if content_px() < NARROW_PX:
        return [st.container() for _ in widths]
    return st.columns(widths, vertical_alignment=align)


def measure() -> None:
    """Draw the component, at the end of a page; it has no height."""
    told = {"told": content_px(), "usual": USUAL_PX, "step": _STEP_PX}
    _component()(data=told, key="page_width", height=1, on_width_change=lambda: None)


@functools.cache
def _component() -> Callable[..., Any]:
    return st.components.v2.component("page_width", html="<span></span>", js=_MEASURE)
