"""A Plotly figure on a page, with a handler for clicks and a menu of pictures.

Streamlit replaces a Plotly chart whose content changes. This component redraws the figure in the same
element, and keeps the zoom while the axes are the same.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from inspector.figures import frame
from inspector.media.streamlit.page import page_files
from inspector.media.streamlit.parts import downloads
from inspector.media.streamlit.server.middleware import PLOTLY
from inspector.sharding.once import NewestResults
from inspector.text.printable import one_line

# Seconds between new figures and later elements. The browser draws all of 10 ms together, or
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


@dataclass(frozen=True)
class Zoom:
    """The shown part of the x axis of a figure, which the user can zoom and pan.

    Attributes:
      period: start and end; None for the whole axis.
      number: of `period`. With another number the browser shows it, otherwise the choice of the user.
      on_change: called with each period that the user has chosen, as the browser sends it.
    """

    period: tuple[float, float] | None
    number: int
    on_change: Callable[[Any], None]


_MOST_TEXTS = 64  # of figures, of all sessions
_texts = NewestResults[str](_MOST_TEXTS)
_part: ContextVar[_Part | None] = ContextVar("part", default=None)


@contextlib.contextmanager
def of(lines: Callable[[], Sequence[str]], *, key: str = "pictures", alone: bool = False) -> Iterator[None]:
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
        downloads.draw_dialog(part.figures, lines, key)


def end_of_figures() -> None:
    """Give the browser time to draw the first figures, if these are to be sent alone."""
    part = _part.get()
    if part is not None and part.alone and part.figures:
        part.alone = False
        time.sleep(FIGURES_ALONE_SECONDS)


def draw(
    figure: go.Figure,
    key: str,
    *,
    alt: str,
    on_pick: Callable[[Any], None] | None = None,
    zoom: Zoom | None = None,
) -> None:
    """Draw a figure.

    Args:
      alt: the subject of the figure; a screen reader also gets the main statement of the figure itself.
      on_pick: called with the custom data of the clicked point.
      zoom: for a figure whose x axis begins with its whole range.
    """
    alt = one_line(alt)

    def picked() -> None:
        if on_pick is not None and (event := st.session_state[key].get("pick")) is not None:
            on_pick(_custom_data(event.get("value")))

    def zoomed() -> None:
        if zoom is not None:
            zoom.on_change(st.session_state[key].get("period"))

    _component()(
        data={
            "figure": _texts.of(None, (figure,), lambda: str(figure.to_json(validate=False))),
            "alt": one_line(frame.alternative(figure, alt)),
            "height": figure.layout.height,
            "pickable": on_pick is not None,
            "zoom": zoom and {"period": zoom.period, "number": zoom.number},
        },
        key=key,
        on_pick_change=picked,
        on_period_change=zoomed,
    )
    if zoom is not None and zoom.period is not None:
        figure = go.Figure(figure).update_xaxes(range=zoom.period)
    keep(key, figure, alt)


def keep(key: str, figure: go.Figure, alt: str) -> None:
    """Let the menu of this part of the page save a figure."""
    part = _part.get()
    if part is not None:
        part.figures[key] = (figure, alt)


@functools.cache
def _component() -> Callable[..., Any]:
    script = page_files.text("chart.js").replace("PLOTLY_URL", f".{PLOTLY}")
    return st.components.v2.component(
        "figure",
        html='<div class="figure" role="figure"></div><output></output>',
        css=page_files.text("chart.css"),
        js=script,
        isolate_styles=False,  # Plotly adds its styles to the page
    )


def _custom_data(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and value else value
