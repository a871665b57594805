"""The assessments that the head of the Layout page showed.

It compares the layout with one of them, and shows the last one while the next is computed.
"""

from collections.abc import Sequence

import streamlit as st
from cachetools import LRUCache

from inspector.compare import board_link
from inspector.core.assessment import Assessment
from inspector.layout import Layout
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import pins

_SHOWN, _NOW, _BEFORE = "assessments_shown", "assessed_layout", "assessed_layout_before"
_COMPLETE = "answers_complete"  # the model, and the last answers for it of which nothing more is computed
_MOST = 100


def keep_complete(model: str, answers: Sequence[str]) -> None:
    """Keep the four answers for a layout of this model, of which nothing more is computed."""
    st.session_state[_COMPLETE] = model, answers


def complete(model: str) -> Sequence[str] | None:
    """Return the last complete answers if they are for a layout of this model, else None."""
    of_model, answers = st.session_state.get(_COMPLETE, (None, None))
    return answers if of_model == model else None


def baseline(layout: Layout, assessment: Assessment) -> tuple[str, Assessment] | None:
    """Keep the assessment of a layout. Return the one to compare it with, and the name of its layout.

    That is the last pinned layout of the same model, else the one before the last edit, without a name.
    Return None if the page did not show that layout: nothing is computed for a comparison.
    """
    state = st.session_state
    shown: LRUCache[str, Assessment] = state.setdefault(_SHOWN, LRUCache(_MOST))
    key = layout.key()
    if state.get(_NOW) != (layout.model, key):
        model, before = state.get(_NOW, (None, None))
        state[_BEFORE] = before if model == layout.model else None
        state[_NOW] = layout.model, key
    shown[key] = assessment
    for pin in pins.board().pins[-1:]:
        pinned = board_link.layout_of(pin.snapshot)
        if (
            pinned is not None
            and (pinned.model, pinned != layout) == (layout.model, True)
            and pinned.key() in shown
        ):
            return plain(pin.name), shown[pinned.key()]
    before = state[_BEFORE]
    return ("", shown[before]) if before in shown else None
