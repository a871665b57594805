"""The pins of the board as a row of menus."""

from collections.abc import Callable

import streamlit as st

from inspector.compare import board_link
from inspector.compare.board import MOST_CHARACTERS, MOST_PINS, Board, free_name
from inspector.layout import Layout, presets
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import current_layout, finished_runs, pins, planning, screenshot_mode
from inspector.sections import provenance
from inspector.service.inspection import Inspection


def show(service: Inspection, board: Board, open_layout: Callable[[Layout], None]) -> None:
    """Draw for each pin a menu (rename, move, remove, make it the baseline) and a button that opens it.

    A further button adds the current layout, if it is none of them and the board has room.
    """
    with screenshot_mode.controls("pins", horizontal=True, gap="small"):
        for place, pin in enumerate(board.pins):
            icon = ":material/flag:" if place == board.baseline else ":material/keep:"
            with st.popover(plain(pin.name), icon=icon, key=f"pin:{place}"):
                _menu(board, place)
            if (layout := board_link.layout_of(pin.snapshot)) is not None:
                label, key = "Open in Layout", f"pin_open:{place}"
                buttons.draw(label, key, "edit", open_layout, layout, type="tertiary")
        _draw_add(service, board)


def _draw_add(service: Inspection, board: Board) -> None:
    layout = current_layout.last_layout()
    plain_layout = layout.to_json()
    if len(board.pins) == MOST_PINS or any(pin.snapshot.layout == plain_layout for pin in board.pins):
        return
    if st.button("Add the current layout", key="pin_current", icon=":material/add:", type="tertiary"):
        snapshot = finished_runs.run_of(service, layout) or planning.planned(service, layout)
        name = free_name(presets.title(layout), board.names)
        if snapshot is not None and pins.change(lambda board: board.pinned(name, snapshot)):
            st.rerun()


def _menu(board: Board, place: int) -> None:
    pin = board.pins[place]
    # With the name in the key, the field follows its pin when pins move.
    name_key = f"pin_name:{place}:{pin.name}"
    st.text_input(
        "Name",
        value=pin.name,
        key=name_key,
        max_chars=MOST_CHARACTERS,
        on_change=_rename,
        args=(place, name_key),
    )
    st.caption(plain(provenance.line(pin.snapshot)))
    if place == board.baseline:
        st.caption(":material/flag: Baseline of the comparison.")
    else:
        _button("Make baseline", "flag", place, lambda board: board.compared_to(place))
    with st.container(horizontal=True, gap="small"):
        last = len(board.pins) - 1
        _button("Move left", "arrow_back", place, lambda board: board.moved(place, -1), place == 0)
        _button("Move right", "arrow_forward", place, lambda board: board.moved(place, 1), place == last)
        _button("Remove", "delete", place, lambda board: board.without(place))


def _button(
    label: str, icon: str, place: int, change: Callable[[Board], Board], disabled: bool = False
) -> None:
    key = f"pin_{label.split()[-1].lower()}:{place}"
    buttons.draw(label, key, icon, pins.change, change, disabled=disabled)


def _rename(place: int, name_key: str) -> None:
    name = st.session_state[name_key]
    pins.change(lambda board: board.renamed(place, name))
