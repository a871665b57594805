"""Download and upload of the board as one file with all Snapshots."""

from __future__ import annotations

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.media.streamlit import chip_choice, pins
from inspector.media.streamlit.plain_text import plain

_MEBIBYTE = 1024**2
_FILE = "board_file"


def draw_download(board: Board) -> None:
    """Draw the button that downloads the board."""
    st.download_button(
        "Save",
        data=lambda: boards.dumps(board),
        file_name="board.json",
        mime="application/json",
        key="download_board",
        icon=":material/download:",
        type="tertiary",
        on_click="ignore",
        help="Download all pinned Snapshots with their names and the baseline.",
    )


def draw_upload(board: Board) -> None:
    """Draw the upload field, and the buttons that take the uploaded board."""
    uploaded = st.file_uploader(
        "Board file or Snapshot",
        type="json",
        key=_FILE,
        max_upload_size=boards.MOST_BYTES // _MEBIBYTE,
    )
    if uploaded is None:
        return
    try:
        opened = boards.parse(uploaded.getvalue(), uploaded.name)
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    st.caption(f"{counted(len(opened.pins), 'layout')}: {plain(', '.join(opened.names))}.")
    with st.container(horizontal=True):
        st.button(
            "Replace board" if board.pins else "Open board",
            key="replace_board",
            icon=":material/file_open:",
            on_click=_replace,
            args=(opened,),
        )
        if board.pins:
            st.button(
                "Add to board",
                key="add_to_board",
                icon=":material/add:",
                on_click=pins.change,
                args=(lambda current: current.joined(opened),),
            )


def _replace(opened: Board) -> None:
    st.session_state[chip_choice.KEY] = opened.chip
    pins.put(opened)
