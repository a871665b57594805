"""The search for a change that makes a layout fit, once it is known that it does not."""

from __future__ import annotations

from dataclasses import replace

from inspector.core.assessment import Assessment, MemoryNeed
from inspector.core.remedies import Remedies
from inspector.layout import Layout
from inspector.media.streamlit.parts import render
from inspector.media.streamlit.session import asked, user
from inspector.sections import improvements as section
from inspector.sections.improvements import Improvement
from inspector.service.engine import Status
from inspector.service.request import Progress, Request

_JOB = "remedies"


def improvement(layout: Layout, assessment: Assessment) -> Improvement | None:
    """Return the change with which the layout fits; None if it fits, or if no such change is known."""
    if (need := _missing(assessment)) is None:
        return None
    known = _request(layout, assessment).known()
    return None if known is None else section.of_remedies(known, need)


def show(layout: Layout, assessment: Assessment) -> None:
    """Draw the change that makes the layout fit, or the progress of the search; nothing if it may fit."""
    if (need := _missing(assessment)) is None:
        asked.of(_JOB).cancel()
        return
    request = _request(layout, assessment)
    known = asked.of(_JOB).ask(request).result
    if known is not None:
        render.show([section.fitting(known, need)])
    elif not asked.show_failure(_JOB, request.key, request):
        asked.show_progress(_JOB)


def _request(layout: Layout, assessment: Assessment) -> Request[Remedies]:
    return replace(user.service().remedies(layout, assessment.chip or ""), describe=_progress)


def _progress(status: Status) -> Progress:
    label = status.progress.get("label")
    return Progress(f"Looking for a change that makes it fit{f': {label}' if label else ''}")


def _missing(assessment: Assessment) -> MemoryNeed | None:
    """Return the memory that the layout needs if it does not fit into that of the chip, else None."""
    need = assessment.memory
    too_large = need is not None and need.fits is False and assessment.chip is not None
    return need if too_large and not assessment.rejected else None
