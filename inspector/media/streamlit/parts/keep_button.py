"""The button and the dialog that save a Snapshot or the board in the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from inspector.compare.board import Board
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import open_dialog
from inspector.media.streamlit.session import user
from inspector.service.library import LONGEST_NAME, LONGEST_NOTE, NameTaken

Kept = Snapshot | Board


def show(
    found: Kept,
    suggested_name: str,
    key: str,
    then: Callable[[str, Any], None] | None = None,
) -> None:
    """Draw the button. The library is opened only to save.

    Args:
      key: a prefix of the widget keys.
      then: called with the name and what was saved.
    """
    saved = st.session_state.pop(f"{key}:saved", None)
    open_dialog.draw_button("Save", ":material/bookmark:", key, key=f"{key}:open")
    if saved is not None:
        # Not in the callback: what a dialog's callback draws has no place once the dialog is closed.
        st.toast(f"Saved {plain(saved)} in the library.", icon=":material/bookmark_added:")
    if open_dialog.is_open(key):
        _dialog(found, suggested_name, key, then)


@st.dialog("Save in the library", icon=":material/bookmark:", on_dismiss=open_dialog.close)
def _dialog(
    found: Kept, suggested_name: str, key: str, then: Callable[[str, Any], None] | None
) -> None:
    state = st.session_state
    if f"{key}:saved" in state:
        st.rerun()  # closes the dialog
    # A new key for each suggestion: the field then has the new suggestion.
    name_key, note_key = f"{key}:name:{suggested_name}", f"{key}:note"
    st.text_input(
        "Name in the library",
        value=suggested_name,
        key=name_key,
        max_chars=LONGEST_NAME,
        persist_state="page",
    )
    st.text_area(
        "Note",
        key=note_key,
        max_chars=LONGEST_NOTE,
        height=100,
        placeholder=f"Purpose of this {_noun(found)}",
        persist_state="page",
    )
    name = (state.get(name_key) or "").strip()
    replace = bool(name) and name == state.get(f"{key}:taken")
    st.button(
        f"Replace {_noun(found)}" if replace else "Save in the library",
        key=key,
        icon=":material/bookmark:",
        on_click=_save,
        args=(found, name_key, note_key, key, replace, then),
    )
    if problem := state.pop(f"{key}:problem", None):
        st.error(plain(problem), icon=":material/error:")


def _noun(found: Kept) -> str:
    return "comparison" if isinstance(found, Board) else "Snapshot"


def _save(
    found: Kept,
    name_key: str,
    note_key: str,
    key: str,
    replace: bool,
    then: Callable[[str, Any], None] | None,
) -> None:
    state = st.session_state
    name = (state.get(name_key) or "").strip()
    state.pop(f"{key}:taken", None)
    try:
        entry = user.library().save(name, state.get(note_key) or "", found, replace)
    except NameTaken as error:
        state[f"{key}:taken"] = name
        state[f"{key}:problem"] = f"{error}. Enter another name, or replace the {_noun(found)}."
    except InvalidInput as error:
        state[f"{key}:problem"] = str(error)
    else:
        state[f"{key}:saved"] = entry.name
        open_dialog.close()
        if then is not None:
            then(entry.name, found)
