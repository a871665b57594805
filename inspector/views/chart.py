"""A Plotly figure on a page, and what is done when a person picks something in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import streamlit as st

# Plotly's own bar of buttons covers the title it floats over; dragging zooms without it.
CONFIG = {"displayModeBar": False}


def show(figure: go.Figure, key: str, *, alt: str, on_pick: Callable[[Any], None]) -> None:
    """Draw the figure; `on_pick` gets the custom data of the point that was clicked, or None."""

    def picked() -> None:
        on_pick(_custom_data(st.session_state[key].selection.points))

    st.plotly_chart(
        figure, key=key, config=CONFIG, alt=alt, on_select=picked, selection_mode="points"
    )


def _custom_data(points: list[dict[str, Any]]) -> Any:
    value = points[0].get("customdata") if points else None
    return value[0] if isinstance(value, (list, tuple)) and value else value
