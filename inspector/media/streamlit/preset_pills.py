"""The choice of a preset, which shows the preset that matches the fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from inspector.media.streamlit import kept_field


def draw(
    label: str, key: str, presets: Sequence[Any], current: str | None, apply: Callable[[Any], None]
) -> None:
    """Draw the names of presets with `current` selected. A click calls `apply` with its preset."""
    by_name = {preset.name: preset for preset in presets}
    st.session_state[key] = current
    meanings = "  \n".join(f"**{preset.name}**: {preset.meaning}" for preset in presets)
    kept_field.draw(
        st.pills,
        label,
        list(by_name),
        key=key,
        required=True,  # a click on the selected preset changes nothing
        on_change=lambda: apply(by_name[st.session_state[key]]),
        help=meanings,
    )
