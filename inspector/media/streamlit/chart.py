"""A Plotly figure on a page, and what is done when a person picks something in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from inspector.media.streamlit import picture_buttons

# Plotly's own bar of buttons covers the title it floats over; dragging zooms without it.
CONFIG = {"displayModeBar": False}


# The figures of this part of the page, by key, with the words for each.
_drawn: ContextVar[dict[str, tuple[go.Figure, str]] | None] = ContextVar("drawn", default=None)


@contextlib.contextmanager
def of(lines: Callable[[], Sequence[str]], *, key: str = "pictures") -> Iterator[None]:
    """What is drawn within it can be saved as pictures, by a menu at its end.

    Args:
      lines: gives what the figures are of, to be written on each picture.
      key: of the menu; each that can stand on the same page has its own.
    """
    drawn: dict[str, tuple[go.Figure, str]] = {}
    before = _drawn.set(drawn)
    try:
        yield
    finally:
        _drawn.reset(before)
    if drawn:
        picture_buttons.show(drawn, lines, key)


def draw(figure: go.Figure, key: str, *, alt: str) -> None:
    """Draw a figure in which nothing can be picked."""
    st.plotly_chart(figure, key=key, config=CONFIG, alt=alt)
    _remember(figure, key, alt)


def show(figure: go.Figure, key: str, *, alt: str, on_pick: Callable[[Any], None]) -> None:
    """Draw the figure; `on_pick` gets the custom data of the point that was clicked, or None."""

    def picked() -> None:
        on_pick(_custom_data(st.session_state[key].selection.points))

    st.plotly_chart(
        figure, key=key, config=CONFIG, alt=alt, on_select=picked, selection_mode="points"
    )
    _remember(figure, key, alt)


def _remember(figure: go.Figure, key: str, alt: str) -> None:
    drawn = _drawn.get()
    if drawn is not None:
        drawn[key] = (figure, alt)


def _custom_data(points: list[dict[str, Any]]) -> Any:
    value = points[0].get("customdata") if points else None
    return value[0] if isinstance(value, (list, tuple)) and value else value
