"""The choice of a preset, which shows the preset that matches the fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st


def draw(
    label: str, key: str, presets: Sequence[Any], current: str | None, apply: Callable[[Any], None]
) -> None:
    """Draw the names of presets with `current` selected. A click calls `apply` with its preset."""
    by_name = {preset.name: preset for preset in presets}
    st.session_state[key] = current

    def change() -> None:
        if (chosen := by_name.get(st.session_state[key] or current)) is not None:
            apply(chosen)

    meanings = "  \n".join(f"**{preset.name}**: {preset.meaning}" for preset in presets)
    st.pills(label, list(by_name), key=key, on_change=change, help=meanings)
