"""The button and the dialog that save a Snapshot in the library."""

from __future__ import annotations

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.media.streamlit import user
from inspector.media.streamlit.plain_text import plain
from inspector.service.library import LONGEST_NAME, LONGEST_NOTE, NameTaken


def show(snapshot: Snapshot, suggested_name: str, key: str) -> None:
    """Draw the button. The library is opened only to save. `key` is a prefix of the widget keys."""
    saved = st.session_state.pop(f"{key}:saved", None)
    if st.button("Keep", key=f"{key}:open", icon=":material/bookmark:", type="tertiary"):
        _dialog(snapshot, suggested_name, key)
    elif saved is not None:
        # Not in the callback: what a dialog's callback draws has no place once the dialog is closed.
        st.toast(f"Saved {plain(saved)} in the library.", icon=":material/bookmark_added:")


@st.dialog("Keep in the library", icon=":material/bookmark:")
def _dialog(snapshot: Snapshot, suggested_name: str, key: str) -> None:
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
        placeholder="Purpose of this Snapshot",
        persist_state="page",
    )
    name = (state.get(name_key) or "").strip()
    replace = bool(name) and name == state.get(f"{key}:taken")
    st.button(
        "Replace Snapshot" if replace else "Keep in the library",
        key=key,
        icon=":material/bookmark:",
        type="primary",
        on_click=_save,
        args=(snapshot, name_key, note_key, key, replace),
    )
    if problem := state.pop(f"{key}:problem", None):
        st.error(plain(problem), icon=":material/error:")


def _save(snapshot: Snapshot, name_key: str, note_key: str, key: str, replace: bool) -> None:
    state = st.session_state
    name = (state.get(name_key) or "").strip()
    state.pop(f"{key}:taken", None)
    try:
        entry = user.library().save(name, state.get(note_key) or "", snapshot, replace)
    except NameTaken as error:
        state[f"{key}:taken"] = name
        state[f"{key}:problem"] = f"{error}. Enter another name, or replace the Snapshot."
    except InvalidInput as error:
        state[f"{key}:problem"] = str(error)
    else:
        state[f"{key}:saved"] = entry.name
