"""Waiting for a job of a moment: a spinner, and the job's place in the queue or its step."""

from __future__ import annotations

from typing import TypeVar

import streamlit as st

from inspector.media.streamlit.page.plain_text import plain
from inspector.service.engine import Job

POLL_SECONDS = 0.2

Result = TypeVar("Result")


def wait_for(job: Job[Result], message: str) -> Result:
    """Return the answer of the job when it has finished. Leaving the page cancels the job.

    Raises:
      InvalidInput: the job failed.
    """
    try:
        with st.spinner(plain(message), show_time=True):
            note = st.empty()
            while not job.wait(POLL_SECONDS).finished:
                # Each write lets Streamlit stop this run if the user has changed something.
                note.caption(_note(job))
            note.empty()
        return job.answer()
    finally:
        job.cancel()


def _note(job: Job[Result]) -> str:
    status = job.status()
    if status.place:
        return f"Waiting for a worker, place {status.place} in the queue."
    if "done" in status.progress:
        return f"Step {status.progress['done'] + 1} of {status.progress['of']}."
    return ""
