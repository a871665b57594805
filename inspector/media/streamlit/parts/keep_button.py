"""The button and the dialog that save a Snapshot or the board in the library."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from inspector.compare.board import Board
from inspector.jobs.library import LONGEST_NAME, LONGEST_NOTE, NameTaken
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import open_dialog
from inspector.media.streamlit.session import user
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput

Kept = Snapshot | Board


def show(
    kept: Kept,
    suggested_name: str,
    key: str,
    then: Callable[[str, Any], None] | None = None,
) -> None:
    """Draw the button. The library is opened only to save.

    Args:
      key: a prefix of the widget keys.
      then: called with the name and the saved object.
    """
    if (saved := st.session_state.pop(f"{key}:saved", None)) is not None:
        # Not in the callback: elements of a dialog's callback have no place once the dialog is closed.
        st.toast(f"Saved {plain(saved)} in the library.", icon=":material/bookmark_added:")
    open_dialog.draw(
        "Save",
        "bookmark",
        "Save in the library",
        lambda: _show_fields(kept, suggested_name, key, then),
        key,
        key=f"{key}:open",
    )


def _show_fields(kept: Kept, suggested_name: str, key: str, then: Callable[[str, Any], None] | None) -> None:
    state, noun = st.session_state, "comparison" if isinstance(kept, Board) else "Snapshot"
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
        placeholder=f"Purpose of this {noun}",
        persist_state="page",
    )
    name = (state.get(name_key) or "").strip()
    replace = bool(name) and name == state.get(f"{key}:taken")

    def save() -> None:
        typed = (state.get(name_key) or "").strip()
        state.pop(f"{key}:taken", None)
        try:
            entry = user.library().save(typed, state.get(note_key) or "", kept, replace)
        except NameTaken as error:
            state[f"{key}:taken"] = typed
            state[f"{key}:problem"] = f"{error}. Enter another name, or replace the {noun}."
        except InvalidInput as error:
            state[f"{key}:problem"] = str(error)
        else:
            state[f"{key}:saved"] = entry.name
            open_dialog.close()
            if then is not None:
                then(entry.name, kept)

    label = f"Replace {noun}" if replace else "Save in the library"
    buttons.draw(label, key, "bookmark", save)
    if problem := state.pop(f"{key}:problem", None):
        st.error(plain(problem), icon=":material/error:")
