"""A Plotly figure on a page, with a handler for clicks and a menu of pictures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from inspector.core.printable import one_line
from inspector.figures import frame, palette
from inspector.media.streamlit.parts import picture_buttons

# Plotly's own bar of buttons covers the title it floats over; dragging zooms without it.
CONFIG = {"displayModeBar": False}


# Seconds between new figures and what follows them. The browser draws in one go what arrives within 10 ms, or
# while it is busy; tables and fields right after a figure delayed it by 30 to 100 ms.
FIGURES_ALONE_SECONDS = 0.05


@dataclass
class _Part:
    """A part of the page.

    Attributes:
      alone: whether its first figures are still to be sent before the rest.
      figures: the figures drawn so far: key -> (figure, alternative text).
    """

    alone: bool
    figures: dict[str, tuple[go.Figure, str]] = field(default_factory=dict)


_RAMP = tuple(palette.ramp(palette.CIVIDIS))  # lightest first, for a light page
_part: ContextVar[_Part | None] = ContextVar("part", default=None)


@contextlib.contextmanager
def of(
    lines: Callable[[], Sequence[str]], *, key: str = "pictures", alone: bool = False
) -> Iterator[None]:
    """Draw a menu below the figures of the `with` block, which saves them as pictures.

    Args:
      lines: returns the provenance that each picture shows.
      key: the key of the menu, unique on its page.
      alone: let the browser draw the first figures before the rest is sent; for figures that are new.
    """
    part = _Part(alone)
    before = _part.set(part)
    try:
        yield
    finally:
        _part.reset(before)
    if part.figures:
        picture_buttons.show(part.figures, lines, key)


def end_of_figures() -> None:
    """Give the browser time to draw the first figures, if these are to be sent alone."""
    part = _part.get()
    if part is not None and part.alone and part.figures:
        part.alone = False
        time.sleep(FIGURES_ALONE_SECONDS)


def draw(
    figure: go.Figure, key: str, *, alt: str, on_pick: Callable[[Any], None] | None = None
) -> None:
    """Draw a figure.

    Args:
      alt: the subject of the figure; a screen reader also gets the main statement of the figure itself.
      on_pick: called with the custom data of the clicked point, or with None after a click next to it.
    """
    alt = one_line(alt)
    settings: dict[str, Any] = {}
    if on_pick is not None:

        def picked() -> None:
            on_pick(_custom_data(st.session_state[key].selection.points))

        settings = {"on_select": picked, "selection_mode": "points"}
    said = one_line(frame.alternative(figure, alt))
    shown = _on_dark(figure) if st.context.theme.type == "dark" else figure
    st.plotly_chart(shown, key=key, config=CONFIG, alt=said, **settings)
    part = _part.get()
    if part is not None:
        part.figures[key] = (figure, alt)


def _on_dark(figure: go.Figure) -> go.Figure:
    """Return a figure whose heat maps are brighter for more, as contrast with a dark page needs.

    Texts in cells have colors for the ramp as it is, so a heat map with texts keeps it. Pictures have a
    light ground and take the figure itself.
    """
    if not any(map(_has_ramp, figure.data)):
        return figure
    shown = go.Figure(figure)
    for trace in filter(_has_ramp, shown.data):
        trace.reversescale = True
    return shown


def _has_ramp(trace: Any) -> bool:
    return trace.type == "heatmap" and trace.text is None and trace.colorscale == _RAMP


def _custom_data(points: list[dict[str, Any]]) -> Any:
    value = points[0].get("customdata") if points else None
    return value[0] if isinstance(value, (list, tuple)) and value else value
