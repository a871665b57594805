"""The choice of one of a Snapshot's programs: side by side, or in a list if there are many."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from inspector.core.printable import one_line
from inspector.media.streamlit.plain_text import plain
from inspector.sections.programs import title

FIRST = "train_step"
_MAX_SIDE_BY_SIDE = 6
_MAX_CHARACTERS = 24  # of a name in a row of names


def choose(names: Sequence[str], key: str) -> str:
    """Draw the choice and return the chosen name. There must be at least one program."""
    if st.session_state.get(key) not in names:
        st.session_state[key] = FIRST if FIRST in names else names[0]
    if len(names) > _MAX_SIDE_BY_SIDE or any(len(name) > _MAX_CHARACTERS for name in names):
        # A list reads no Markdown.
        return st.selectbox(
            "Program",
            names,
            format_func=lambda name: one_line(title(name)),
            key=key,
            label_visibility="collapsed",
        )
    return st.segmented_control(
        "Program",
        names,
        format_func=lambda name: plain(title(name)),
        key=key,
        required=True,
        label_visibility="collapsed",
    )
