"""The page that opens files of a real job: uploads from the user's disk, and folders of recorded programs.

A browser names no path on the server."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from inspector.answers import unknown
from inspector.files.sources import READERS
from inspector.jobs import serving
from inspector.jobs.engine import Job, Status
from inspector.jobs.program_run import folder_snapshot
from inspector.jobs.request import Progress, Request
from inspector.layout import layout_of, parse_given_mesh
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import snapshot_panels, summary_panel
from inspector.media.streamlit.session import asked, stated_counts, user, view_link
from inspector.media.streamlit.streamlit_internals import UploadedFile, release
from inspector.readers import archive, limits
from inspector.records import program_run
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted, whole_seconds_text

OPENED = "opened_snapshot"  # (name, Snapshot)
_SAVED = "opened_saved"  # its name in the library; None for an upload
_PARAMETER = "snapshot"  # of the URL: the name of a Snapshot in the library
_TABS_KEY = "opened_panel"
_PROBLEMS = "open_link_problems"
_JOB = "import"
_UPLOADS = "open_uploads"  # counts uploads: each has a new field, because the last one is released
_MEBIBYTE = 1024**2
_MOST_RUNS = 20  # folders of recorded programs

KINDS: dict[str, str | None] = {
    "Detect": None,
    **{reader.title: kind for kind, reader in READERS.items()},
}
_PHASES = {"start": "Starting a worker", "unpack": "Unpacking", "read": "Reading"}


def show() -> None:
    """Draw the page: the upload field, then the panels of the opened Snapshot."""
    problems = _read_link()
    opened: tuple[str, Snapshot] | None = st.session_state.get(OPENED)
    if opened is not None:
        problems += view_link.absent(opened[1])
    view_link.show_problems(problems)
    if not asked.show_progress(_JOB):
        if opened is None:
            st.markdown("### Open a file")
            _show_field()
            _show_runs()
        else:
            with st.expander("Open another file", icon=":material/upload_file:"):
                _show_field()
    asked.show_failure(_JOB, _JOB)
    if opened is None:
        _show_formats()
        return
    name, snapshot = opened[0], stated_counts.applied(opened[1])
    summary_panel.show_opened(name, snapshot)
    # The layout that this project made the Snapshot from, if there is one.
    layout = None if unknown.imported_from(snapshot) else layout_of(snapshot)
    snapshot_panels.show(snapshot_panels.draw_tabs(_TABS_KEY), snapshot, layout)
    page_width.measure()
    _write_link(name, snapshot)


def put(name: str, snapshot: Snapshot, saved: bool = False) -> None:
    """Open a Snapshot on this page. `saved` is whether `name` is its name in the library."""
    st.session_state[OPENED] = (name, snapshot)
    st.session_state[_SAVED] = name if saved else None


def _read_link() -> list[str]:
    """Open the Snapshot of the library, the tab, the array and the program of the URL. Return problems."""
    view, others = view_link.of_url()
    if view_link.is_written(_TABS_KEY) or not (view or others):
        return list(st.session_state.get(_PROBLEMS, []))
    problems = [*view_link.read(view, snapshot_panels.PANELS, _TABS_KEY).values()]
    problems += [
        f"{shown(key)} is ignored: a link to this page has {_PARAMETER}, {', '.join(view_link.PARAMETERS)}"
        for key in others
        if key != _PARAMETER
    ]
    name = others.get(_PARAMETER, [""])[-1]
    if name and name != st.session_state.get(_SAVED):
        try:
            put(name, user.library().open(name), saved=True)
        except InvalidInput as error:
            problems.append(str(error))
    st.session_state[_PROBLEMS] = problems
    return problems.copy()


def _write_link(name: str, snapshot: Snapshot) -> None:
    """Write the open files to the URL. An upload is in no link."""
    saved = {_PARAMETER: [name]} if st.session_state.get(_SAVED) == name else {}
    view = view_link.query(snapshot_panels.PANELS, _TABS_KEY, snapshot) if saved else {}
    view_link.write(view, saved, _TABS_KEY)


def _show_field() -> None:
    uploads = st.file_uploader(
        "Files, or a zip of a folder",
        accept_multiple_files=True,
        key=f"open_files:{st.session_state.get(_UPLOADS, 0)}",
        max_upload_size=limits.MOST_UPLOAD_BYTES // _MEBIBYTE,
    )
    with st.expander("If the type is detected wrongly, or HLO names no mesh"):
        columns = st.columns([2, 1, 2])
        kind = columns[0].selectbox("File type", list(KINDS), format_func=plain, key="open_kind")
        mesh, axes = _mesh_fields(columns[1:], KINDS[kind])
    if not uploads:
        return
    asked.of(_JOB).again(_request(uploads, KINDS[kind], mesh, axes))
    release(uploads)
    st.session_state[_UPLOADS] = st.session_state.get(_UPLOADS, 0) + 1
    st.rerun()


def _mesh_fields(columns: Sequence[Any], kind: str | None) -> tuple[str, str]:
    """Draw the fields for the mesh of a program whose text names none. Return their text."""
    disabled = kind is not None and not READERS[kind].takes_mesh
    mesh = columns[0].text_input(
        "Mesh",
        key="open_mesh",
        placeholder="2x4",
        disabled=disabled,
        help="Sizes of the mesh axes.",
    )
    axes = columns[1].text_input("Mesh axes", key="open_axes", placeholder="data, model", disabled=disabled)
    return ("", "") if disabled else (mesh or "", axes or "")


def _request(uploads: Sequence[UploadedFile], kind: str | None, mesh: str, axes: str) -> Request[Snapshot]:
    """Return the request to copy the files to a folder and have a worker read them.

    It cannot start if a file name or the mesh is not allowed, the files are too many or too large, or the
    disk is full.
    """
    # Some browsers send the folders of a file too.
    files = [upload.name.replace("\\", "/").rpartition("/")[2] for upload in uploads]
    name = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"

    def start() -> Job[Snapshot]:
        given = parse_given_mesh(mesh, axes, limits.MOST_DEVICES, limits.MOST_AXES)
        total = sum(upload.size for upload in uploads)
        if total > limits.MOST_UPLOAD_BYTES:
            raise InvalidInput(
                f"the {counted(len(uploads), 'file')} have {-(-total // _MEBIBYTE):,} MiB, but at "
                f"most {limits.MOST_UPLOAD_BYTES // _MEBIBYTE} MiB can be uploaded; use `sharding-inspector "
                "import`"
            )
        names = [archive.safe_path(file, "the upload").name for file in files]
        if len(set(names)) != len(names):
            raise InvalidInput("two files have the same name")

        def read(folder: Path) -> Job[Snapshot]:
            inside = folder / "files"
            inside.mkdir()
            for file_name, upload in zip(names, uploads, strict=True):
                (inside / file_name).write_bytes(upload.getvalue())  # without a copy
            path = inside / names[0] if len(names) == 1 else inside
            return user.service().file(path, name, kind, folder=folder, mesh=given).start()

        return asked.in_folder(read)

    def keep(snapshot: Snapshot) -> None:
        put(snapshot.source.file or name, snapshot)

    return Request(_JOB, start, describe=partial(_progress, name), keep=keep)


def _progress(name: str, status: Status) -> Progress:
    label, share = _PHASES.get(status.phase or "start", "Reading"), 0.0
    done, of = status.progress.get("done"), status.progress.get("of")
    if of and done is not None:
        label += f", {done + 1:,} of {of:,}"
        share = done / of
    return Progress(f"{label}: {name}", share, f"{whole_seconds_text(status.elapsed)} elapsed.")


def _show_runs() -> None:
    """Draw a button for each folder that `run` wrote where the server of the only user was started."""
    runs = [] if serving.current().team else sorted(Path.cwd().glob(f"*/{program_run.FILE}"))
    for number, folder in enumerate(file.parent for file in runs[:_MOST_RUNS]):
        label = plain(f"Recorded program in {folder.name}")
        if st.button(label, key=f"open_run:{number}", icon=":material/folder_open:", type="tertiary"):
            try:
                snapshot = folder_snapshot.read(folder)
            except InvalidInput as error:
                st.error(plain(str(error)), icon=":material/error:")
            else:
                put(snapshot.source.file or folder.name, snapshot)
                st.rerun()


def _show_formats() -> None:
    rows = "".join(
        f"| **{reader.title}** | {reader.upload} | {reader.contains} |\n" for reader in READERS.values()
    )
    st.markdown(f"| Format | File | Contents |\n|---|---|---|\n{rows}")
    st.caption(
        f"At most {limits.MOST_UPLOAD_BYTES // _MEBIBYTE} MiB. Array values are not read. For larger "
        "files, run `sharding-inspector import orbax FOLDER -o snapshot.json` and open the result."
    )
