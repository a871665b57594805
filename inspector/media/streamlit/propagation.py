"""Propagated programs of a plan, made in the background while a panel that shows them is open."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Finding, Program, Snapshot
from inspector.layout import Layout
from inspector.layout.plan import NOT_PROPAGATED
from inspector.service.engine import Job
from inspector.service.inspection import Inspection

POLL_SECONDS = 0.5
_RUNNING, _FAILED = "propagation", "propagation_failed"


@dataclass(eq=False)
class _Running:
    """The one propagation of the session.

    Attributes:
      origins: whether it records where shardings come from. If that fails, it is tried without.
    """

    layout: Layout
    job: Job[tuple[Program, ...]]
    origins: bool


def with_known(service: Inspection, planned: Snapshot, layout: Layout) -> Snapshot:
    """Return the plan with its propagated programs, or with a note if they cannot be propagated.

    Return the plan itself if they are not known yet.
    """
    programs = service.known_programs(layout)
    if programs is not None:
        return replace(planned, programs=programs)
    failed_layout, reason = st.session_state.get(_FAILED, (None, ""))
    if failed_layout != layout:
        return planned
    note = Finding("note", NOT_PROPAGATED, reason)
    return replace(planned, findings=(*planned.findings, note))


def is_known(snapshot: Snapshot) -> bool:
    """Return whether the Snapshot has programs, or a note why they cannot be propagated."""
    return bool(snapshot.programs) or any(one.code == NOT_PROPAGATED for one in snapshot.findings)


def show(service: Inspection, layout: Layout) -> None:
    """Propagate in the background and say so, then rerun the page. Draw it last in its container."""
    st.fragment(_poll, run_every=POLL_SECONDS)(service, layout)


def make_way(service: Inspection, layout: Layout) -> None:
    """Cancel the propagation if the planner process must first trace the layout's model."""
    running: _Running | None = st.session_state.get(_RUNNING)
    if running is not None and service.known_state(layout) is None:
        running.job.cancel()


def _poll(service: Inspection, layout: Layout) -> None:
    if _is_finished(service, layout):
        st.rerun()
    st.info(
        "Propagating shardings through the programs, without a compile …",
        icon=":material/hourglass_top:",
    )


def _is_finished(service: Inspection, layout: Layout) -> bool:
    """Return whether the programs of this layout are known or have failed; if not, see that a job runs.

    A running job of an earlier layout is not cancelled, because that could end the planner process. The
    newest layout follows when it has finished.
    """
    state = st.session_state
    running: _Running | None = state.get(_RUNNING)
    if running is not None:
        if running.layout != layout and running.job.state == "queued":
            running.job.cancel()
        if not running.job.finished:
            return False
        state[_RUNNING] = None
        try:
            running.job.answer()  # the service then knows the programs
        except InvalidInput as error:
            if running.layout == layout and running.job.state == "failed":
                if running.origins:
                    _start(service, layout, origins=False)
                    return False
                state[_FAILED] = (layout, str(error))
                return True
    if service.known_programs(layout) is not None:
        return True
    _start(service, layout)
    return False


def _start(service: Inspection, layout: Layout, origins: bool = True) -> None:
    job = service.start_propagation(layout, origins)
    running = _Running(layout, job, origins)
    # Streamlit drops the state of a session some time after its tab is closed.
    weakref.finalize(running, job.cancel)
    st.session_state[_RUNNING] = running
