"""Which of a Snapshot's programs a panel shows: a few side by side, many in a list."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from inspector.media.streamlit.plain_text import plain

PROGRAM_NAMES = {"init": "Initialisation", "train_step": "Train step", "apply": "Inference"}
FIRST = "train_step"  # what people ask about first
_MOST_SIDE_BY_SIDE = 6
_LONGEST = 24  # characters of a name beside others


def choose(names: Sequence[str], key: str) -> str:
    """Ask, and give the name of one of the programs; there must be one."""
    if st.session_state.get(key) not in names:
        st.session_state[key] = FIRST if FIRST in names else names[0]
    if len(names) > _MOST_SIDE_BY_SIDE or any(len(name) > _LONGEST for name in names):
        # A list shows names as they are; it reads no Markdown.
        return st.selectbox(
            "Program", names, format_func=_title, key=key, label_visibility="collapsed"
        )
    return st.segmented_control(
        "Program",
        names,
        format_func=lambda name: plain(_title(name)),
        key=key,
        required=True,
        label_visibility="collapsed",
    )


def _title(name: str) -> str:
    return PROGRAM_NAMES.get(name, name)
