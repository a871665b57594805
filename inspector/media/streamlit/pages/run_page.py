"""The page of a recorded program: the answers of its arrays and programs, also while it runs."""

from pathlib import Path

import streamlit as st

from inspector.answers import program_run as program_run_section
from inspector.jobs.program_run import folder_snapshot
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import snapshot_panels, summary_panel
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import stated_counts, user
from inspector.records import program_run, snapshot
from inspector.records.program_run import ProgramRun
from inspector.text.errors import InvalidInput

_REFRESH = 2.0  # seconds
_ALL = "Live arrays and all programs"
_SEEN = "run_page_seen"  # the record that the page was drawn for


def show() -> None:
    """Draw the Snapshot that the user chooses, then the table of compiled programs."""
    folder = user.run_folder()
    if folder is None:
        st.info("Start the dashboard with `--run FOLDER`, or a program with `run --open`.")
        return
    try:
        run = program_run.read(folder)
    except InvalidInput as error:
        st.error(plain(str(error)))
        return
    st.session_state[_SEEN] = run
    if run.ended is None:
        _follow(folder)
    _show_chosen(run, folder)
    render.show([program_run_section.section(run)])
    page_width.measure()


def _show_chosen(run: ProgramRun, folder: Path) -> None:
    files = _files(run, folder)
    if not files:
        st.info("No Snapshot yet.")
        return
    title, choice = page_width.beside([3, 2], align="top")
    chosen = choice.selectbox(
        "Snapshot", list(files), format_func=plain, key="run_snapshot", label_visibility="collapsed"
    )
    try:
        # All of them together, with the findings of the recorder, as every verb reads the folder.
        shown = folder_snapshot.read(folder) if chosen == _ALL else snapshot.read(folder / files[chosen])
    except InvalidInput as error:
        st.error(plain(str(error)))
        return
    shown = stated_counts.applied(shown)
    with title:
        summary_panel.show_title(shown, program_run_section.line(run))
    summary_panel.show_answers(shown)
    tabs = snapshot_panels.draw_tabs("run_panel")
    snapshot_panels.show(tabs, shown, None)


def _files(run: ProgramRun, folder: Path) -> dict[str, str]:
    files = {_ALL: program_run.SNAPSHOT} if (folder / program_run.SNAPSHOT).is_file() else {}
    for program in run.programs:
        files[program.name] = program.file
        if program.target_file is not None:
            files[f"{program.name}, compiled for {run.target}"] = program.target_file
    return files


@st.fragment(run_every=_REFRESH)
def _follow(folder: Path) -> None:
    """Draw the page again when the record has changed."""
    if st.button("Capture arrays now", icon=":material/photo_camera:"):
        (folder / program_run.REQUEST).touch()
    try:
        now = program_run.read(folder)
    except InvalidInput:
        return
    if now != st.session_state.get(_SEEN):
        st.rerun()
