"""Download and upload of the board as one file with all Snapshots."""

from __future__ import annotations

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.core.temporary_folder import TemporaryFolder
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import downloads
from inspector.media.streamlit.session import chip_choice, pins, user, waiting
from inspector.media.streamlit.streamlit_internals import UploadedFile

_MEBIBYTE = 1024**2
_FILE = "board_file"
_READ = "board_file_read"  # (file id, Board or InvalidInput) of the last upload


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
        st.session_state[_READ] = None
        return
    opened = _read(uploaded)
    if isinstance(opened, InvalidInput):
        st.error(plain(str(opened)), icon=":material/error:")
        return
    st.caption(f"{counted(len(opened.pins), 'layout')}: {plain(', '.join(opened.names))}.")
    with st.container(horizontal=True):
        label = "Replace the pins" if board.pins else "Open comparison"
        buttons.draw(label, "replace_board", "file_open", _replace, opened)
        if board.pins:
            label, change = "Add to the pins", pins.change
            buttons.draw(label, "add_to_board", "add", change, lambda now: now.joined(opened))


def _read(uploaded: UploadedFile) -> Board | InvalidInput:
    """Return the board in a file, or the error. A worker reads it once, not again on each rerun."""
    read: tuple[str, Board | InvalidInput] | None = st.session_state.get(_READ)
    if read is not None and read[0] == uploaded.file_id:
        return read[1]
    opened: Board | InvalidInput
    folder = TemporaryFolder()
    try:
        path = folder.path / "board.json"
        path.write_bytes(uploaded.getvalue())  # without a copy
        job = user.service().start_board(path, uploaded.name)
        opened = waiting.wait_for(job, "Reading the file …")
    except InvalidInput as error:
        opened = error
    except OSError as error:
        opened = InvalidInput(f"the upload cannot be stored: {error.strerror}")
    finally:
        folder.remove(patience=0)
    st.session_state[_READ] = (uploaded.file_id, opened)
    return opened


def _replace(opened: Board) -> None:
    chip_choice.put(opened.chip)
    pins.put(opened)
