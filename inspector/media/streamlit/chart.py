"""A Plotly figure on a page, with a handler for clicks and a menu of pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from inspector.core.printable import one_line
from inspector.figures import frame
from inspector.media.streamlit import picture_buttons

# Plotly's own bar of buttons covers the title it floats over; dragging zooms without it.
CONFIG = {"displayModeBar": False}


# The figures of this part of the page: key -> (figure, alternative text).
_drawn: ContextVar[dict[str, tuple[go.Figure, str]] | None] = ContextVar("drawn", default=None)


@contextlib.contextmanager
def of(lines: Callable[[], Sequence[str]], *, key: str = "pictures") -> Iterator[None]:
    """Draw a menu below the figures of the `with` block, which saves them as pictures.

    Args:
      lines: returns the provenance that each picture shows.
      key: the key of the menu, unique on its page.
    """
    drawn: dict[str, tuple[go.Figure, str]] = {}
    before = _drawn.set(drawn)
    try:
        yield
    finally:
        _drawn.reset(before)
    if drawn:
        picture_buttons.show(drawn, lines, key)


def draw(
    figure: go.Figure, key: str, *, alt: str, on_pick: Callable[[Any], None] | None = None
) -> None:
    """Draw a figure.

    Args:
      alt: the subject of the figure; a screen reader also gets the main statement of the figure itself.
      on_pick: called with the custom data of the clicked point, or with None.
    """
    alt = one_line(alt)
    settings: dict[str, Any] = {}
    if on_pick is not None:

        def picked() -> None:
            on_pick(_custom_data(st.session_state[key].selection.points))

        settings = {"on_select": picked, "selection_mode": "points"}
    said = one_line(frame.alternative(figure, alt))
    st.plotly_chart(figure, key=key, config=CONFIG, alt=said, **settings)
    drawn = _drawn.get()
    if drawn is not None:
        drawn[key] = (figure, alt)


def _custom_data(points: list[dict[str, Any]]) -> Any:
    value = points[0].get("customdata") if points else None
    return value[0] if isinstance(value, (list, tuple)) and value else value
