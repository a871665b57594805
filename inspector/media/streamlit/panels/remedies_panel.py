"""The search for a change that makes a layout fit, once it is known that it does not."""

from __future__ import annotations

import streamlit as st

from inspector.core.assessment import Assessment
from inspector.core.remedies import Remedies
from inspector.layout import Layout
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import job_progress, user
from inspector.media.streamlit.session.job_progress import Progress, Task
from inspector.sections import improvements as section
from inspector.sections.improvements import Improvement
from inspector.service.engine import Job, Status

_JOB = "remedies"
_ENDED = "remedies_ended"  # the key of the job that failed or was cancelled


def improvement(layout: Layout, assessment: Assessment) -> Improvement | None:
    """Return the change with which the layout fits; None if it fits, or if no such change is known."""
    known = _known(layout, assessment)
    if known is None or assessment.memory is None:
        return None
    return section.of_remedies(known, assessment.memory)


def show(layout: Layout, assessment: Assessment) -> None:
    """Draw the change that makes the layout fit, or the progress of the search; nothing if it may fit."""
    if not _is_too_large(assessment):
        job_progress.cancel(_JOB)
        return
    known, need = _known(layout, assessment), assessment.memory
    if known is not None and need is not None:
        render.show([section.fitting(known, need)])
        return
    key = f"{layout.key()} {assessment.chip}"
    if st.session_state.get(_ENDED) == key and not job_progress.subject(_JOB):
        job_progress.show_problem(_JOB)
        return
    if job_progress.subject(_JOB) != key:
        job_progress.cancel(_JOB)
        job_progress.start(_JOB, lambda: _task(layout, assessment.chip or "", key))
    job_progress.show(_JOB)


def _task(layout: Layout, chip: str, key: str) -> Task:
    job: Job[Remedies] = user.service().start_remedies(layout, chip)

    def finish() -> None:
        st.session_state[_ENDED] = key
        job.answer()  # the service then knows it

    return Task(job_progress.of_job(job, _progress), finish, job.cancel, key)


def _progress(status: Status) -> Progress:
    label = status.progress.get("label")
    return Progress(f"Looking for a change that makes it fit{f': {label}' if label else ''}", 0.0)


def _is_too_large(assessment: Assessment) -> bool:
    need = assessment.memory
    return need is not None and need.fits is False and assessment.chip is not None and not assessment.rejected


def _known(layout: Layout, assessment: Assessment) -> Remedies | None:
    if not _is_too_large(assessment):
        return None
    return user.service().known_remedies(layout, assessment.chip or "")
