"""Download and upload of the board as one file with all Snapshots."""

from pathlib import Path

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.core.formatting import counted
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import downloads
from inspector.media.streamlit.session import asked, chip_choice, pins, user
from inspector.media.streamlit.streamlit_internals import UploadedFile
from inspector.service.engine import Job
from inspector.service.request import Request

_MEBIBYTE = 1024**2
_FILE = "board_file"


def draw_download(board: Board) -> None:
    """Draw the button that downloads the board."""
    downloads.draw(
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
