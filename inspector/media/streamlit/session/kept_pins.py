"""The pins that the browser keeps, so that a reload and its other tabs have them.

It keeps the text of a link to the board, without figures, as it was when the pins of any tab changed last. A
session that begins without pins gets the text, and reads it as a link that anyone could have written.
"""

import hashlib
import urllib.parse
from dataclasses import replace
from typing import Any

import streamlit as st

from inspector.compare import board_link
from inspector.compare.board import MOST_PINS, Board
from inspector.jobs.engine import Requester
from inspector.media.streamlit.page import page_files
from inspector.media.streamlit.session import pins, user

MOST_CHARACTERS = 32_768  # a pin takes about 200

_KEY = "kept_pins"
_PARAMETERS = ("pin", "baseline")
_TEXT, _SENT = "pins_as_text", "pins_to_restore"


def draw() -> None:
    """Draw the invisible component, at the end of a page, and restore the pins that it has sent."""
    state = st.session_state
    if query := state.get(_SENT):
        pins.restore(query)
        del state[_SENT]  # not before, because a click stops the wait for plans
        st.rerun()
    requester = user.current()
    data = {"key": _key(requester), "text": _text(), "session": requester.session_digest}
    page_files.component("kept_pins")(data=data, key=_KEY, width=1, height=1, on_kept_change=_receive)


def _text() -> str | None:
    """Return the text that the browser keeps: nothing if empty, the present one if None."""
    state, board = st.session_state, replace(pins.board(), chip=None)
    kept: tuple[Board, str | None] = state.get(_TEXT, (Board(), None))
    before, text = kept
    if board != before:  # the text of eight pins takes 13 ms
        text = urllib.parse.urlencode(board_link.to_query(board), doseq=True)
        text = text if len(text) <= MOST_CHARACTERS else ""
        state[_TEXT] = (board, text)
    return text


def _receive() -> None:
    """Read the pins in the browser, unless the session has pins or its URL names a board."""
    text = st.session_state[_KEY].get("kept")
    named = {"pin", pins.KEPT} & st.query_params.keys()
    if _TEXT in st.session_state or named or (query := _parsed(text)) is None:
        return
    st.session_state[_SENT] = query


def _parsed(text: Any) -> dict[str, list[str]] | None:
    """Return the URL parameters in a text of the browser; None if `draw` could not send it."""
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS or not text.isascii():
        return None
    try:
        query = urllib.parse.parse_qs(text, max_num_fields=MOST_PINS + len(_PARAMETERS))
    except ValueError:
        return None
    return {name: query[name] for name in _PARAMETERS if name in query} or None


def _key(requester: Requester) -> str:
    """Return the name of the entry in the browser. A signed-in user does not get that of another."""
    if not requester.signed_in:
        return "pins"
    return f"pins-{hashlib.sha256(requester.owner.encode()).hexdigest()[:32]}"
