"""The requests of a browser session to the service: the progress of its jobs, Cancel, and why jobs failed."""

import itertools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from inspector.files.temporary_folder import TemporaryFolder
from inspector.jobs.engine import Job
from inspector.jobs.request import Asked, Outcome, Progress, Request
from inspector.media.streamlit.page import buttons
from inspector.media.streamlit.page.plain_text import plain
from inspector.text.errors import InvalidInput

# Between looks at a job. Each redraws a part of the page, which takes a browser a tenth of a second of
# processor time that the job lacks, and can swallow a click on Cancel.
POLL_SECONDS = 1.0
# Of them, a look waits so long for the end. A click on Cancel waits as long.
_END_SECONDS = 0.6
_LOOK_SECONDS = 0.05
_WAIT_SECONDS = 0.2

Answer = TypeVar("Answer")


def of(name: str, cancels: bool = True) -> Asked[Any]:
    """Return the requests of this name in the session. `cancels` is that of `Asked`."""
    key = f"asked:{name}"
    if key not in st.session_state:
        st.session_state[key] = Asked(cancels)
    asked: Asked[Any] = st.session_state[key]
    return asked


def forget(name: str) -> None:
    """Cancel the running job, and forget all results of this name."""
    st.session_state.pop(f"asked:{name}", None)


def show_progress(name: str, *requests: Request[Any], begins: Callable[[], bool] | None = None) -> bool:
    """Draw the progress of the running job, and rerun the page at its end. Return False if no job runs.

    The label marks a job for another layout than those of `requests`, if there are any.

    begins: whether the job of the first request begins now, if none runs. It is called until it returns True.
    """
    if of(name).job is None and begins is None:
        return False
    # The fragment reruns alone, so the other widgets of the page stay usable. Its first run is a part of the
    # page, which must not wait. Nobody waits for a job that begins by itself.
    waits = itertools.chain([0.0], itertools.repeat(_END_SECONDS if begins is None else 0.0))
    st.fragment(_poll, run_every=POLL_SECONDS)(name, requests, waits, begins)
    return True


def show_failure(name: str, key: str, again: Request[Any] | None = None, label: str = "Try again") -> bool:
    """Draw why the last job of the request with this key failed, if it did, and return whether it did.

    again: the request of a button with this label, unless it was refused; None draws none.
    """
    failure = of(name).failure(key)
    if failure is not None:
        st.error(plain(failure), icon=":material/error:")
        if again is not None and of(name).may_retry(key):
            buttons.draw(label, f"{name}_again:{key}", "refresh", of(name).again, again)
    return failure is not None


def waited(name: str, request: Request[Answer], message: str) -> Outcome[Answer]:
    """Return the outcome after the job has ended. Show `message` and the step of the job until then.

    If the user changes something meanwhile, the next run of the page waits for the same job.
    """
    outcome: Outcome[Answer] = of(name).ask(request)
    if outcome.job is not None:
        with st.spinner(plain(message), show_time=True):
            note = st.empty()
            while (outcome := of(name).ask(request)).job is not None:
                # Each write lets Streamlit stop this run if the user has changed something.
                note.caption(_note(outcome.job))
                outcome.job.wait(_WAIT_SECONDS)
            note.empty()
    return outcome


def draw(name: str, progress: Progress, cancel: Callable[[], None]) -> None:
    """Draw a progress bar with the button that cancels."""
    # Not columns: in a narrow window the button would be too small for its label.
    with st.container(horizontal=True, vertical_alignment="center", gap="small", wrap=False):
        st.progress(progress.share, text=plain(progress.label))
        if st.button("Cancel", key=f"cancel_{name}", icon=":material/stop:", width="content"):
            cancel()
    if progress.note:
        st.caption(progress.note)


def in_folder(start: Callable[[Path], Job[Answer]]) -> Job[Answer]:
    """Start a job that reads files in a new folder, which is removed when the job is needed no longer.

    start: writes the files and starts the job.

    Raises:
      InvalidInput: the disk is full, or the job cannot be started.
    """
    folder = TemporaryFolder()
    try:
        job = start(folder.path)
    except BaseException as error:
        folder.remove(patience=0)
        if isinstance(error, OSError):
            raise InvalidInput(f"the upload cannot be stored: {error.strerror}") from None
        raise
    weakref.finalize(job, folder.remove)
    return job


def _poll(
    name: str,
    shown: Sequence[Request[Any]],
    waits: Iterator[float],
    begins: Callable[[], bool] | None,
) -> None:
    until = time.monotonic() + next(waits)
    if begins is not None and of(name).ask(shown[0], begins()) == Outcome():
        return
    running, job = of(name).running(), of(name).job
    if running is None or job is None:
        st.rerun()
    status = job.status()
    progress = running.describe(status)
    if status.place is not None:
        label = f"Waiting for a worker, place {status.place} in the queue"
        progress = replace(progress, label=label, note="Starts when a worker is free.")
    if shown and running.key not in [request.key for request in shown]:
        progress = replace(progress, label=f"{progress.label} (for another layout)")
    draw(name, progress, job.cancel)
    while time.monotonic() < until and not job.wait(_LOOK_SECONDS).finished:
        of(name)  # a read of the session's state: Streamlit stops this run if the user has changed something
    if of(name).running() is None:
        st.rerun()


def _note(job: Job[Any]) -> str:
    status = job.status()
    if status.place:
        return f"Waiting for a worker, place {status.place} in the queue."
    if "done" in status.progress:
        return f"Step {status.progress['done'] + 1} of {status.progress['of']}."
    return ""
