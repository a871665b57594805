"""Waiting on a page for a job that takes a moment: a spinner with words, and where the job is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import streamlit as st

from inspector.media.streamlit.plain_text import plain
from inspector.service.engine import Job

POLL_SECONDS = 0.2

Answer = TypeVar("Answer")


def wait_for(job: Job, words: str, take: Callable[[Job], Answer]) -> Answer:
    """What `take` makes of the job once it has finished; who leaves the page cancels it.

    Raises:
      InvalidInput: the job did not end well, as `take` says.
    """
    try:
        with st.spinner(plain(words), show_time=True):
            note = st.empty()
            while not job.wait(POLL_SECONDS).finished:
                # Writing lets Streamlit end this run if the person has changed something meanwhile.
                note.caption(_where(job))
            note.empty()
        return take(job)
    finally:
        job.cancel()


def _where(job: Job) -> str:
    status = job.status()
    if status.place:
        return f"Waiting for a worker, place {status.place} in the queue."
    if "done" in status.progress:
        return f"Step {status.progress['done'] + 1} of {status.progress['of']}."
    return ""
