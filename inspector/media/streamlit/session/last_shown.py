"""The assessments that the head of the Layout page showed, and the one that it compares the layout with."""

from __future__ import annotations

import streamlit as st
from cachetools import LRUCache

from inspector.compare import board_link
from inspector.core.assessment import Assessment
from inspector.layout import Layout
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import pins

_SHOWN, _NOW, _BEFORE = "assessments_shown", "assessed_layout", "assessed_layout_before"
_MOST = 100


def baseline(layout: Layout, assessment: Assessment) -> tuple[str, Assessment] | None:
    """Keep the assessment of a layout. Return the one to compare it with, and the name of its layout.

    That is the last pinned layout, else the layout before the last edit. Return None if the page did not
    show that layout: nothing is computed for a comparison.
    """
    state = st.session_state
    shown: LRUCache[str, Assessment] = state.setdefault(_SHOWN, LRUCache(_MOST))
    key = layout.key()
    if state.get(_NOW) != key:
        state[_BEFORE], state[_NOW] = state.get(_NOW), key
    shown[key] = assessment
    for pin in pins.board().pins[-1:]:
        pinned = board_link.layout_of(pin.snapshot)
        if pinned is not None and pinned != layout and pinned.key() in shown:
            return plain(pin.name), shown[pinned.key()]
    before = state[_BEFORE]
    return ("the layout before the last edit", shown[before]) if before in shown else None
