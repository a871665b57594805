"""Pin a Snapshot, and compare two on the board."""

import time

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import MOST_CHARACTERS, MOST_PINS, Board
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout, presets
from inspector.media.streamlit.page import page_files, page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import pins, planning
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput


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


def show(snapshot: Snapshot, suggested_name: str, key: str) -> None:
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
