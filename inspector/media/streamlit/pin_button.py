"""Pin what the page shows to the board, under a name."""

from __future__ import annotations

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import MOST_CHARACTERS, MOST_PINS
from inspector.core.snapshot import Snapshot
from inspector.media.streamlit import pins
from inspector.media.streamlit.menu import menu
from inspector.media.streamlit.plain_text import plain


def show(found: Snapshot, suggested_name: str, key: str) -> None:
    """A popover with a name to change and a button; what became of it is said there.

    Args:
      suggested_name: what the name field holds at first, with a number where that is taken.
      key: of the widgets, one for each place of the page.
    """
    board = pins.board()
    free = boards.free_name(suggested_name, board.names)
    # Another suggestion is another field, and so is the next one after a pin: none keeps an old name.
    name_key = f"{key}:name:{free}:{len(board.pins)}"
    with menu("Pin", ":material/keep:", f"{key}:popover") as drawer:
        if not drawer.open:
            return
        st.text_input(
            "Name on the board",
            value=free,
            key=name_key,
            max_chars=MOST_CHARACTERS,
            persist_state="page",
        )
        st.button(
            "Pin to the board",
            key=key,
            icon=":material/keep:",
            type="primary",
            on_click=_pin,
            args=(found, name_key),
        )
        refused = pins.refused()
        if refused:
            st.error(plain(refused), icon=":material/error:")
        st.caption(_words(found, board))


def _pin(found: Snapshot, name_key: str) -> None:
    name = st.session_state.get(name_key) or ""
    if pins.change(lambda board: board.pinned(name, found)):
        count = len(pins.board().pins)
        st.toast(f"{plain(name.strip())} is on the board, {count} of {MOST_PINS}.")


def _words(found: Snapshot, board: boards.Board) -> str:
    if not board.pins:
        return f"The Board page shows up to {MOST_PINS} layouts side by side."
    already = [pin.name for pin in board.pins if pin.snapshot is found or pin.snapshot == found]
    names = ", ".join(plain(name) for name in board.names)
    said = f"{len(board.pins)} of {MOST_PINS} on the board: {names}."
    return said + (f" This very Snapshot is there as {plain(already[0])}." if already else "")
