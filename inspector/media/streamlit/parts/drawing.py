"""A drawing as SVG on a page, with a handler for clicks on its parts."""

import functools
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from inspector.core.once import NewestResults
from inspector.figures import stamp
from inspector.figures.whole_model.svg import Svg
from inspector.media.streamlit.page import page_files
from inspector.media.streamlit.parts import chart

_figures = NewestResults[go.Figure](most=16)


def draw(svg: Svg, key: str, *, alt: str, on_pick: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Draw it.

    Args:
      alt: its subject, which names the files it is saved as.
      on_pick: called with the `path`, `collective` or `position` of the part that was clicked.
    """

    def picked() -> None:
        if on_pick is not None and isinstance(value := st.session_state[key].get("pick"), dict):
            on_pick(value)

    _component()(data={"svg": svg.text}, key=key, on_pick_change=picked)
    chart.keep(key, _figures.of(None, (svg,), lambda: stamp.figure_of(svg)), alt)


@functools.cache
def _component() -> Callable[..., Any]:
    return st.components.v2.component(
        "drawing",
        html='<div class="drawing"></div>',
        css=page_files.text("drawing.css"),
        js=page_files.text("drawing.js"),
        isolate_styles=False,
    )
