"""The Jobs page: what runs and waits on this server, whose it is, and Cancel for the user's own."""

import streamlit as st

from inspector.answers.program_run import PHASE_NAMES, phase_label
from inspector.jobs import host_memory, inspection, lanes, serving
from inspector.jobs.engine.pool import Listed
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import user
from inspector.media.streamlit.streamlit_internals import DeltaGenerator
from inspector.text.formatting import and_text, bytes_text, seconds_text

POLL_SECONDS = 2.0
# Relative widths. In a window of 800 pixels, no word breaks and the button keeps its label.
_COLUMNS = {"Position": 1.3, "Job": 2.5, "Owner": 1.8, "Phase": 2.3, "Memory": 1.25, "Age": 0.9}
_BUTTON_WIDTH = 1.75
_KINDS = {
    "run": "Run",
    "compile": "Compile",
    "time_together": "Paired timing",
    "assemble": "Arrays from pieces",
    "exchange": "Several processes",
    "tutorial": "Tutorial",
    "effects": "Effects",
    "import": "Read a file",
    "board": "Read a comparison",
    "remedies": "Changes that fit",
    "rules": "Read rules",
}
_PHASES = PHASE_NAMES | {"unpack": "Unpacking"}


def show() -> None:
    """Draw all jobs of the server."""
    st.markdown("### Jobs")
    st.caption(_rules())
    st.fragment(_show_jobs, run_every=POLL_SECONDS)()


def own() -> int:
    """Return the number of the user's jobs that run or wait. The navigation shows them."""
    return sum(map(_is_own, inspection.shared().pool.jobs()))


def _rules() -> str:
    who = "user" if serving.current().proxy else "browser"
    return (
        f"Each {who} has at most {lanes.MOST_JOBS} jobs of a kind. A job ends a minute after its tab is "
        "closed. Searches are on the page *Search*."
    )


def _show_jobs() -> None:
    buttons.show_problem()
    listed = sorted(inspection.shared().pool.jobs(), key=lambda job: (job.status.place or 0, -job.age))
    if not listed:
        st.info("No job runs or waits.", icon=":material/check_circle:")
        return
    for cell, heading in zip(_row(), _COLUMNS, strict=False):
        cell.markdown(f"**{heading}**")
    for job in listed:
        _show_job(job)


def _row() -> list[DeltaGenerator]:
    return st.columns([*_COLUMNS.values(), _BUTTON_WIDTH], vertical_alignment="center", gap="small")


def _is_own(job: Listed) -> bool:
    return job.belongs_to(user.current().owner)


def _show_job(job: Listed) -> None:
    cells = _row()
    place = "Running" if job.status.place is None else f"{job.status.place}"
    age = f"{job.age:.0f} s" if job.age < 120 else seconds_text(job.age)
    texts = (place, _title(job), _owners(job), _phase(job), _memory(job), age)
    for cell, text in zip(cells, texts, strict=False):
        cell.markdown(plain(text))
    if _is_own(job):
        with cells[-1]:
            key, help = f"cancel_job:{job.number}", plain(f"Cancel {_title(job)}")
            buttons.draw("Cancel", key, "stop", _cancel, job.number, help=help)


def _title(job: Listed) -> str:
    """Return the task of a job. Others see the target, but not the layout."""
    parts = [_KINDS.get(job.kind, job.kind)]
    if _is_own(job) and job.subject.title:
        parts.append(job.subject.title)
    if job.subject.target is not None:
        parts.append(job.subject.target)
    return " · ".join(parts)


def _owners(job: Listed) -> str:
    own = user.current().owner
    others = dict.fromkeys(other.name for other in job.requesters if other.owner != own)
    names = ["You"] if own in (requester.owner for requester in job.requesters) else []
    return and_text([*names, *others])


def _phase(job: Listed) -> str:
    phase, progress = job.status.phase, job.status.progress
    if phase is None:
        return f"Waiting in the queue of {job.lane}"
    label = phase_label(_PHASES, phase, progress)
    if "done" in progress and "of" in progress:
        label += f", {progress['done']:,} of {progress['of']:,}"
    return label


def _memory(job: Listed) -> str:
    used = sum(host_memory.resident_bytes(pid) or 0 for pid in job.pids)
    return bytes_text(used) if used else "–"


def _cancel(number: int) -> None:
    with buttons.keep_problem():
        user.service().cancel(number)
