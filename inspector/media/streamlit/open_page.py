"""The page that opens what a real job left behind: a file from the person's own disk, never the server's."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, seconds_text
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import opened_summary, page_width, snapshot_panels
from inspector.media.streamlit.plain_text import plain
from inspector.producers.readers import archive, limits
from inspector.producers.readers.checkpoint_folder import CheckpointFolder
from inspector.producers.readers.guess import FileKind
from inspector.sections import unknown
from inspector.service import inspection
from inspector.service.engine import Job
from inspector.service.inspection import Inspection

OPENED = "opened_snapshot"  # (name, Snapshot): other pages put here what is to be shown
_READING = "open_reading"
_REFUSED = "open_refused"
_ROUND = "open_round"  # a new field after each upload, so that the file leaves the server's memory
_KIND = "open_kind"
_FILES = "files"
_POLL_SECONDS = 0.3  # below it a rerun can swallow a click on Cancel
_MEBIBYTE = 1024**2

KINDS: dict[str, FileKind | None] = {
    "Told by its content": None,
    "Snapshot": "snapshot",
    "Orbax checkpoint": "orbax",
    "_sharding file": "sharding",
    "MaxText golden": "maxtext",
    "HLO text": "hlo",
}
_PHASES = {"start": "Starting a worker", "unpack": "Unpacking", "read": "Reading"}


@dataclass(eq=False)
class Reading:
    """Files of this session that a worker reads, and the folder that they are in until it is done."""

    name: str
    folder: CheckpointFolder
    job: Job


def show() -> None:
    """The field for files, what became of the last one, and all that the Snapshot shows."""
    service = inspection.shared()
    opened: tuple[str, Snapshot] | None = st.session_state.get(OPENED)
    if st.session_state.get(_READING) is not None:
        st.fragment(_show_progress, run_every=_POLL_SECONDS)(service)
    elif opened is None:
        st.markdown("### Open what a job left behind")
        _show_field(service)
    else:
        with st.expander("Open another file", icon=":material/upload_file:"):
            _show_field(service)
    refused = st.session_state.get(_REFUSED)
    if refused:
        st.error(plain(refused), icon=":material/error:")
    if opened is None:
        _show_what_opens()
        return
    name, found = opened
    opened_summary.show(name, found)
    snapshot_panels.show(found, _layout_of(found), key="opened_panel")
    page_width.measure()


def _show_field(service: Inspection) -> None:
    kind = st.selectbox(
        "Read it as",
        list(KINDS),
        format_func=plain,
        key=_KIND,
        help="A file says by its content what it is. Choose only where that goes wrong.",
    )
    uploads = st.file_uploader(
        "Files, or a zip of a folder",
        accept_multiple_files=True,
        key=f"open_files:{st.session_state.get(_ROUND, 0)}",
        max_upload_size=limits.MOST_UPLOAD_BYTES // _MEBIBYTE,
    )
    if not uploads:
        return
    st.session_state[_REFUSED] = None
    try:
        st.session_state[_READING] = start(service, uploads, KINDS[kind])
    except InvalidInput as refused:
        st.session_state[_REFUSED] = str(refused)
    st.session_state[_ROUND] = st.session_state.get(_ROUND, 0) + 1
    st.rerun()


def start(service: Inspection, uploads: Sequence[UploadedFile], kind: FileKind | None) -> Reading:
    """Put the files into a folder of their own, and have a worker read them.

    Raises:
      InvalidInput: their names cannot be used, they are too many or too large, or the disk is full.
    """
    together = sum(upload.size for upload in uploads)
    if together > limits.MOST_UPLOAD_BYTES:
        raise InvalidInput(
            f"the {counted(len(uploads), 'file')} have {together // _MEBIBYTE:,} MiB together, "
            f"at most {limits.MOST_UPLOAD_BYTES // _MEBIBYTE} are read; the command line reads larger ones"
        )
    names = [_file_name(upload.name) for upload in uploads]
    if len(set(names)) != len(names):
        raise InvalidInput("two of the files have the same name, so they cannot be told apart")
    folder = CheckpointFolder()
    try:
        inside = folder.path / _FILES
        try:
            inside.mkdir()
            for name, upload in zip(names, uploads, strict=True):
                (inside / name).write_bytes(upload.getbuffer())
        except OSError as error:
            raise InvalidInput(f"the upload cannot be kept: {error.strerror}") from None
        path = inside / names[0] if len(names) == 1 else inside
        name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        job = service.start_import(path, name, kind, folder=folder.path)
    except BaseException:
        folder.remove(patience=0)
        raise
    reading = Reading(name, folder, job)
    # Streamlit drops a session's state a while after its tab is closed; nobody waits then.
    weakref.finalize(reading, _abandon, job, folder)
    return reading


def _file_name(name: str) -> str:
    """The name that an upload has here: without the folders that some browsers send with it.

    Raises:
      InvalidInput: it is none that a file may have.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    return archive.safe_path(last, "the upload").name


def _abandon(job: Job, folder: CheckpointFolder) -> None:
    job.cancel()
    folder.remove()


def _show_progress(service: Inspection) -> None:
    reading: Reading = st.session_state[_READING]
    status = reading.job.status()
    if status.state in ("done", "failed", "cancelled"):
        _finish(service, reading)
        st.rerun()
    words, share = "Waiting for a worker", 0.0
    if status.place is None:
        words = _PHASES.get(status.phase or "start", "Reading")
        done, of = status.progress.get("done"), status.progress.get("of")
        if of:
            words += f", {done + 1:,} of {of:,}"
            share = done / of
    bar, button = st.columns([3, 1], vertical_alignment="center")
    bar.progress(share, text=plain(f"{words}: {reading.name}"))
    if button.button("Cancel", key="cancel_reading", icon=":material/stop:", width="stretch"):
        reading.job.cancel()
    st.caption(f"{seconds_text(status.elapsed)} so far; how long it will take is not known.")


def _finish(service: Inspection, reading: Reading) -> None:
    st.session_state[_READING] = None
    try:
        st.session_state[OPENED] = (reading.name, service.take_import(reading.job))
    except InvalidInput as refused:
        st.session_state[_REFUSED] = str(refused)
    finally:
        reading.folder.remove()


def _layout_of(found: Snapshot) -> Layout | None:
    """The layout that a Snapshot of this project says it is of; None where it says none, or no such."""
    if found.layout is None or unknown.imported_from(found) is not None:
        return None
    try:
        return layouts.from_json(found.layout, "the layout")
    except InvalidInput:
        return None


def _show_what_opens() -> None:
    st.markdown(
        "| What | File | What is then known |\n"
        "|---|---|---|\n"
        "| **Snapshot** | the JSON of `inspect`, of this page or of a capture | everything in it |\n"
        "| **Orbax checkpoint** | a zip of its folder | shapes, types, specs, mesh, bytes |\n"
        "| **`_sharding`** | the file out of a checkpoint, be it cut off | specs and mesh |\n"
        "| **MaxText golden** | `named_shardings.json`, with `logical_shardings.json` and "
        "`input_shardings.json` if there | shapes, specs, logical axes, mesh |\n"
        "| **HLO text** | compiled text, `.gz`, or a zip of what `--xla_dump_to` wrote | collectives, "
        "FLOPs |\n"
    )
    st.caption(
        f"Up to {limits.MOST_UPLOAD_BYTES // _MEBIBYTE} MiB; no value is read. Larger, or in a folder: "
        "`python -m inspector import orbax FOLDER -o snapshot.json`, then open that."
    )
