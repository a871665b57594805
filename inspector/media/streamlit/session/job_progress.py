"""Progress of a session's background job: a bar, Cancel, and why the last job failed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.media.streamlit.page.plain_text import plain
from inspector.service.engine import Job, Status

POLL_SECONDS = 0.3  # with a shorter interval a rerun can swallow a click on Cancel


@dataclass(frozen=True)
class Progress:
    """The progress of a job.

    Attributes:
      label: the current phase.
      share: the finished share of the whole job, from 0 to 1.
      note: elapsed and remaining time; empty if unknown.
    """

    label: str
    share: float
    note: str = ""


@dataclass(eq=False)
class Task:
    """A running job of the session.

    Attributes:
      progress: returns the progress, or None once the job has finished.
      finish: stores the result. Raises InvalidInput if the job failed.
      cancel: cancels the job.
      subject: the layout or layouts of the job, as a key.
      abandon: called when the session ends; None to call `cancel`.
      draw: draws first results below the progress; None draws nothing.
    """

    progress: Callable[[], Progress | None]
    finish: Callable[[], None]
    cancel: Callable[[], None]
    subject: str = ""
    abandon: Callable[[], None] | None = None
    draw: Callable[[], None] | None = None


def start(name: str, make: Callable[[], Task]) -> None:
    """Start the session's job of this name. If `make` raises InvalidInput, keep the message."""
    state = st.session_state
    state[_problem_key(name)] = None
    try:
        task = make()
    except InvalidInput as error:
        state[_problem_key(name)] = str(error)
        return
    # Streamlit drops the state of a session some time after its tab is closed.
    weakref.finalize(task, task.abandon or task.cancel)
    state[_task_key(name)] = task


def show(name: str, subjects: Collection[str] = ()) -> bool:
    """Draw the progress of the running job. Return False if no job runs.

    The label marks a job with a subject that is not among `subjects`, unless these are empty.
    """
    if st.session_state.get(_task_key(name)) is None:
        return False
    # The fragment reruns alone, so the other widgets of the page stay usable.
    st.fragment(_poll, run_every=POLL_SECONDS)(name, subjects)
    return True


def is_running(name: str) -> bool:
    """Return whether a job of this name was started and its result was not taken yet."""
    return st.session_state.get(_task_key(name)) is not None


def subject(name: str) -> str:
    """Return the subject of the running job, or an empty text if no job runs."""
    task: Task | None = st.session_state.get(_task_key(name))
    return "" if task is None else task.subject


def cancel(name: str) -> None:
    """Cancel and forget the running job, if there is one."""
    task: Task | None = st.session_state.pop(_task_key(name), None)
    if task is not None:
        task.cancel()


def show_problem(name: str) -> None:
    """Draw why the last job failed, if it did."""
    if problem := st.session_state.get(_problem_key(name)):
        st.error(plain(problem), icon=":material/error:")


def of_job(job: Job[Any], describe: Callable[[Status], Progress]) -> Callable[[], Progress | None]:
    """Return the `progress` of a Task: the place in the queue, then what `describe` returns."""

    def progress() -> Progress | None:
        status = job.status()
        if status.state in ("done", "failed", "cancelled"):
            return None
        if status.state == "queued":
            label = f"Waiting for a worker, place {status.place} in the queue"
            return Progress(label, 0.0, "Starts when a worker is free.")
        return describe(status)

    return progress


def _poll(name: str, subjects: Collection[str]) -> None:
    state = st.session_state
    task: Task | None = state.get(_task_key(name))
    progress = None if task is None else task.progress()
    if task is None or progress is None:
        state[_task_key(name)] = None
        try:
            if task is not None:
                task.finish()
        except InvalidInput as error:
            state[_problem_key(name)] = str(error)
        st.rerun()
    other = " (for another layout)" if subjects and task.subject not in subjects else ""
    # Not columns: in a narrow window the button would be too small for its label.
    with st.container(horizontal=True, vertical_alignment="center", gap="small", wrap=False):
        st.progress(progress.share, text=plain(progress.label + other))
        if st.button("Cancel", key=f"cancel_{name}", icon=":material/stop:", width="content"):
            task.cancel()
    if progress.note:
        st.caption(progress.note)
    if task.draw is not None:
        task.draw()


def _task_key(name: str) -> str:
    return f"{name}_task"


def _problem_key(name: str) -> str:
    return f"{name}_problem"
