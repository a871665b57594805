"""The buttons that keep a Snapshot: *Save* in the library, which also takes the board, and *Compare*."""

import time
from collections.abc import Callable
from typing import Any

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import MOST_CHARACTERS, MOST_PINS, Board
from inspector.jobs.inspection import Inspection
from inspector.jobs.library import LONGEST_NAME, LONGEST_NOTE, NameTaken
from inspector.layout import Layout, presets
from inspector.media.streamlit.page import buttons, page_files, page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import pins, planning, user
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput

Kept = Snapshot | Board


def show_save(
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
    buttons.draw_with_dialog(
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
            buttons.close_dialog()
            if then is not None:
                then(entry.name, kept)

    label = f"Replace {noun}" if replace else "Save in the library"
    buttons.draw(label, key, "bookmark", save)
    if problem := state.pop(f"{key}:problem", None):
        st.error(plain(problem), icon=":material/error:")


def compare(
    service: Inspection, current: Layout, name: str, other: Layout, *, searched: bool = False
) -> None:
    """Open the board with both layouts, or draw why they cannot be pinned.

    Both are pinned as compiled or measured, or both as planned: figures of a plan and of a compiled layout
    have no ratio.

    searched: whether each is pinned as a search found it, compiled or not.
    """
    try:
        with st.spinner("Partitioning both layouts …"):
            pins.put(_with_pair(service, current, name, other, searched))
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
    else:
        page_switch.to(page_switch.BOARD)


def _with_pair(service: Inspection, current: Layout, name: str, other: Layout, searched: bool) -> Board:
    """Return the board with the current layout, as the baseline, and the other one.

    Raises:
      InvalidInput: the board is full.
    """
    board = pins.board()
    runs = [planning.run_of(service, layout) for layout in (current, other)]
    if not searched and None in runs:
        runs = [None, None]
    for title, layout, run in zip((presets.title(current), name), (current, other), runs, strict=True):
        wanted = (layout.to_json(), run is None)
        pinned = [(pin.snapshot.layout, pin.snapshot.source.kind == "plan") for pin in board.pins]
        position = pinned.index(wanted) if wanted in pinned else len(pinned)
        if position == len(pinned):
            snapshot = run or service.with_programs(service.plan(layout), layout)
            board = board.pinned(boards.free_name(title, board.names), snapshot)
        if layout is current:
            board = board.compared_to(position)
    return board


_PINNED = "pinned_text"  # the layout just pinned, and until when the notice is drawn
_NOTICE = "pinned_notice"
_SECONDS = 10.0  # also if the page is drawn again meanwhile; the style hides it then
# A toast of Streamlit can hold no link to a page of the same session.


def show_pin(snapshot: Snapshot, suggested_name: str, key: str) -> None:
    """Draw the menu with a name field and a button.

    Args:
      snapshot: what to pin.
      suggested_name: initial value of the name field; a number is added if the name is taken.
      key: prefix of the widget keys, unique on the page.
    """
    board = pins.board()
    free = boards.free_name(suggested_name, board.names)
    # A new key for each suggestion and after each pin: the field then has the new suggestion.
    name_key = f"{key}:name:{free}:{len(board.pins)}"
    # A new key after each pin: the popover then is closed. With `on_change` it would rerun the page when
    # a click closes it, and that rerun would cancel a page switch by the same click.
    popover_key = f"{key}:popover:{len(board.pins)}"
    with st.popover("Compare", icon=":material/view_column:", type="tertiary", key=popover_key):
        with st.form(f"{key}:form:{len(board.pins)}", border=False):  # Enter pins
            st.text_input(
                "Name in the comparison",
                value=free,
                key=name_key,
                max_chars=MOST_CHARACTERS,
                persist_state="page",
            )
            st.form_submit_button(
                "Pin for the comparison",
                key=key,
                icon=":material/keep:",
                on_click=_pin,
                args=(snapshot, name_key),
            )
        if problem := pins.take_problem():
            st.error(plain(problem), icon=":material/error:")
        st.caption(_description(snapshot, board))
    text, until = st.session_state.get(_PINNED, ("", 0.0))
    if time.monotonic() < until:
        _show_notice(f"{text}, {len(board.pins)} of {MOST_PINS} layouts.")


def pin(name: str, snapshot: Snapshot, text: str = "Pinned **{}**") -> bool:
    """Pin a Snapshot in a callback, and say so with `text` and its name. Return whether that worked."""
    if not pins.change(lambda board: board.pinned(name, snapshot)):
        return False
    st.session_state[_PINNED] = text.format(plain(name.strip())), time.monotonic() + _SECONDS
    return True


def _pin(snapshot: Snapshot, name_key: str) -> None:
    pin(st.session_state.get(name_key) or "", snapshot)


def _show_notice(text: str) -> None:
    with st.container(key=_NOTICE, gap="xxsmall"):
        st.html(page_files.style("pinned_notice.css"))
        st.markdown(text)
        st.page_link(
            page_switch.page(page_switch.BOARD),
            label="Open the comparison",
            icon=":material/view_column:",
        )


def _description(snapshot: Snapshot, board: boards.Board) -> str:
    if not board.pins:
        return f"Compares up to {MOST_PINS} layouts side by side."
    same = next((pin.name for pin in board.pins if pin.snapshot == snapshot), None)
    names = ", ".join(plain(name) for name in board.names)
    text = f"Pinned ({len(board.pins)} of {MOST_PINS}): {names}."
    return text if same is None else f"{text} This Snapshot is already pinned as {plain(same)}."
