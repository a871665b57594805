"""The choice of a preset, which shows the preset that matches the fields."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from inspector.media.streamlit.session import kept_field

_OTHER = "Custom"


def draw(
    label: str,
    key: str,
    presets: Sequence[Any],
    current: str | None,
    apply: Callable[[Any], None],
    in_list: bool = False,
) -> None:
    """Draw the names of presets with `current` selected. A click calls `apply` with its preset.

    in_list: draw them as a list, which takes one line.
    """
    by_name = {preset.name: preset for preset in presets}
    st.session_state[key] = current or (_OTHER if in_list else None)

    def changed() -> None:
        if (preset := by_name.get(st.session_state[key])) is not None:
            apply(preset)

    if in_list:
        kept_field.draw(st.selectbox, label, list(by_name), key=key, on_change=changed)
        return
    # A click on the selected preset changes nothing.
    kept_field.draw(st.pills, label, list(by_name), key=key, required=True, on_change=changed)
