"""Keep what the page shows in the library, under a name and with a note."""

from __future__ import annotations

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.media.streamlit.menu import menu
from inspector.media.streamlit.plain_text import plain
from inspector.service.library import LONGEST_NAME, LONGEST_NOTE, Library, NameTaken


def show(found: Snapshot, suggested_name: str, key: str) -> None:
    """A popover with fields for name and note; what became of it is said there.

    The library is opened only when somebody saves.

    Args:
      suggested_name: what the name field holds at first.
      key: of the widgets, one for each place of the page.
    """
    # Another suggestion is another field, so that the field does not keep an old one.
    name_key, note_key = f"{key}:name:{suggested_name}", f"{key}:note"
    with menu("Keep", ":material/bookmark:", f"{key}:popover") as drawer:
        if not drawer.open:
            return
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
            placeholder="What it is for",
            persist_state="page",
        )
        taken = st.session_state.get(_taken(key))
        replacing = taken is not None and taken == (st.session_state.get(name_key) or "").strip()
        st.button(
            "Replace it" if replacing else "Keep in the library",
            key=key,
            icon=":material/bookmark:",
            type="primary",
            on_click=_save,
            args=(found, name_key, note_key, key, replacing),
        )
        refused = st.session_state.pop(_refused(key), None)
        if refused:
            st.error(plain(refused), icon=":material/error:")
        st.caption("The Library page opens it again, also in another session.")


def _save(found: Snapshot, name_key: str, note_key: str, key: str, replace: bool) -> None:
    state = st.session_state
    name = (state.get(name_key) or "").strip()
    state.pop(_taken(key), None)
    try:
        entry = Library().save(name, state.get(note_key) or "", found, replace)
    except NameTaken as refused:
        state[_taken(key)] = name
        state[_refused(key)] = f"{refused}. Take another name, or replace it."
    except InvalidInput as refused:
        state[_refused(key)] = str(refused)
    else:
        st.toast(f"{plain(entry.name)} is in the library.", icon=":material/bookmark_added:")


def _taken(key: str) -> str:
    return f"{key}:taken"


def _refused(key: str) -> str:
    return f"{key}:refused"
