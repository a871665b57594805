"""The columns of the page *Compare*: add, rename, remove, download and open them."""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from inspector.answers import subject
from inspector.compare import board as boards
from inspector.compare.board import MOST_CHARACTERS, MOST_PINS, Board, free_name
from inspector.jobs.engine import Job
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Request
from inspector.layout import Layout, layout_of, presets
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import downloads
from inspector.media.streamlit.session import (
    asked,
    chip_choice,
    current_layout,
    pins,
    planning,
    screenshot_mode,
    user,
)
from inspector.media.streamlit.streamlit_internals import UploadedFile
from inspector.text.formatting import counted

_MEBIBYTE = 1024**2
_FILE = "board_file"


def draw_download(board: Board) -> None:
    """Draw the button that downloads the board."""
    downloads.draw_file(
        "Download",
        lambda: boards.dumps(board),
        "comparison.json",
        "download_board",
        help="Download all pinned Snapshots with their names and the baseline.",
    )


def draw_upload(board: Board) -> None:
    """Draw the upload field, and the buttons that take the uploaded board."""
    uploaded = st.file_uploader(
        "Comparison or Snapshot file",
        type="json",
        key=_FILE,
        max_upload_size=boards.MOST_BYTES // _MEBIBYTE,
    )
    if uploaded is None:
        asked.forget(_FILE)
        return
    request = Request(uploaded.file_id, lambda: _start(uploaded))
    opened = asked.waited(_FILE, request, "Reading the file …").result
    if opened is None:
        asked.show_failure(_FILE, request.key)
        return
    st.caption(f"{counted(len(opened.pins), 'layout')}: {plain(', '.join(opened.names))}.")
    with st.container(horizontal=True):
        label = "Replace the pins" if board.pins else "Open comparison"
        buttons.draw(label, "replace_board", "file_open", _replace, opened)
        if board.pins:
            label, change = "Add to the pins", pins.change
            buttons.draw(label, "add_to_board", "add", change, lambda now: now.joined(opened))


def _start(uploaded: UploadedFile) -> Job[Board]:
    def start(folder: Path) -> Job[Board]:
        path = folder / "board.json"
        path.write_bytes(uploaded.getvalue())  # without a copy
        return user.service().board(path, uploaded.name).start()

    return asked.in_folder(start)


def _replace(opened: Board) -> None:
    chip_choice.put(opened.chip)
    pins.put(opened)


def show(service: Inspection, board: Board, open_layout: Callable[[Layout], None]) -> None:
    """Draw for each pin a menu (rename, move, remove, make it the baseline) and a button that opens it.

    A further button adds the current layout, if it is none of them and the board has room.
    """
    with screenshot_mode.controls("pins", horizontal=True, gap="small"):
        for place, pin in enumerate(board.pins):
            icon = ":material/flag:" if place == board.baseline else ":material/keep:"
            with st.popover(plain(pin.name), icon=icon, key=f"pin:{place}"):
                _menu(board, place)
            if (layout := layout_of(pin.snapshot)) is not None:
                label, key = "Open in Layout", f"pin_open:{place}"
                buttons.draw(label, key, "edit", open_layout, layout, type="tertiary")
        _draw_add(service, board)


def _draw_add(service: Inspection, board: Board) -> None:
    layout = current_layout.last_layout()
    plain_layout = layout.to_json()
    if len(board.pins) == MOST_PINS or any(pin.snapshot.layout == plain_layout for pin in board.pins):
        return
    if st.button("Add the current layout", key="pin_current", icon=":material/add:", type="tertiary"):
        snapshot = planning.run_of(service, layout) or planning.planned(service, layout)
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
    st.caption(plain(subject.source_line(pin.snapshot)))
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
