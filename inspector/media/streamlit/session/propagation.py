"""Partitioned programs of a plan, made in the background while a panel that shows them is open."""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass, replace

import streamlit as st

from inspector.core.abstract import PropagatedPrograms
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout import Layout
from inspector.layout.plan import NOT_PROPAGATED, with_programs
from inspector.media.streamlit.session import program_choice
from inspector.service.engine import Job
from inspector.service.inspection import Inspection

POLL_SECONDS = 0.2
# A page whose open panel needs the programs waits this long for them, instead of being drawn twice.
PATIENCE_SECONDS = 0.6
# Figures are sent before the sidebar if the programs are known within this time: drawing the sidebar again
# occupies the browser for longer.
FIGURES_FIRST_SECONDS = 0.3
REST_SECONDS = 0.5  # between looks at the propagation of the other programs
# They are propagated once the layout has been on the page for so long, because the user may be typing.
REST_AFTER_SECONDS = 3.0
_RUNNING, _FAILED = "propagation", "propagation_failed"
_REST, _SINCE = "propagation_rest", "propagation_rest_since"


@dataclass(eq=False)
class _Running:
    """The one propagation of the session."""

    layout: Layout
    job: Job[PropagatedPrograms]


def programs_of(layout: Layout) -> tuple[str, ...]:
    """Return the names of all programs of a layout, in their order in a Snapshot."""
    return ("init", *layout.entry.programs)


def needed(layout: Layout) -> tuple[str, ...]:
    """Return the programs that the open panel shows first: the train step, and the one that is chosen."""
    chosen = program_choice.chosen(st.session_state.get("panel"))
    first = (layout.entry.watched_program, chosen)
    return tuple(name for name in programs_of(layout) if name in first)


def with_known(service: Inspection, planned: Snapshot, layout: Layout) -> Snapshot:
    """Return the plan with its partitioned programs, or with a note if they cannot be partitioned.

    Return the plan itself if they are not known yet.
    """
    programs = service.known_programs(layout, needed(layout))
    if programs is not None:
        return with_programs(planned, programs)
    failed_layout, reason = st.session_state.get(_FAILED, (None, ""))
    if failed_layout != layout:
        return planned
    note = Finding("note", NOT_PROPAGATED, reason)
    return replace(planned, findings=(*planned.findings, note))


def begin(service: Inspection, layout: Layout) -> None:
    """Start the propagation if the open panel needs it and it does not run yet."""
    wait(service, layout, 0)


def wait(service: Inspection, layout: Layout, seconds: float = PATIENCE_SECONDS) -> bool:
    """Start the propagation if it does not run yet, and wait for it for a moment. Return whether it ended."""
    failed, _ = st.session_state.get(_FAILED, (None, ""))
    if failed == layout or service.known_state(layout) is None or _is_finished(service, layout):
        return True
    running: _Running | None = st.session_state.get(_RUNNING)
    if running is None:
        return True
    running.job.wait(seconds)
    return _is_finished(service, layout)


def is_known(service: Inspection, snapshot: Snapshot, layout: Layout) -> bool:
    """Return whether the partitioned programs of the layout are known, or known to fail."""
    if service.known_programs(layout, needed(layout)) is not None:
        return True
    failed_layout, _ = st.session_state.get(_FAILED, (None, ""))
    noted = any(one.code == NOT_PROPAGATED for one in snapshot.findings)
    return noted or failed_layout == layout


def show(service: Inspection, layout: Layout, then: str = "") -> None:
    """Propagate in the background and say so, then rerun the page. `then` says what the programs add."""
    st.fragment(_poll, run_every=POLL_SECONDS)(service, layout, then)


def watch(service: Inspection, layout: Layout) -> None:
    """Rerun the page when the programs are known, for its head. Draws nothing."""
    st.fragment(_rerun_when_finished, run_every=POLL_SECONDS)(service, layout)


def show_rest(service: Inspection, layout: Layout, say_so: bool = True) -> None:
    """Propagate all other programs too, then rerun the page. Draw it after the ones that are known.

    say_so: draw a caption until they are known.
    """
    st.fragment(_poll_rest, run_every=REST_SECONDS)(service, layout, say_so)


def make_way(service: Inspection, layout: Layout) -> None:
    """Cancel the propagation if the planner process must first trace the layout's model."""
    running: _Running | None = st.session_state.get(_RUNNING)
    if running is not None and service.known_state(layout) is None:
        running.job.cancel()


def _rerun_when_finished(service: Inspection, layout: Layout) -> None:
    if _is_finished(service, layout):
        st.rerun()


def _poll(service: Inspection, layout: Layout, then: str) -> None:
    if _is_finished(service, layout):
        st.rerun()
    st.info(
        f"Partitioning the programs, without a compile … {then}".rstrip(),
        icon=":material/hourglass_top:",
    )


def _poll_rest(service: Inspection, layout: Layout, say_so: bool) -> None:
    if service.knows_all_programs(layout):
        st.rerun()
    running: _Running | None = st.session_state.get(_REST)
    waiting, since = st.session_state.get(_SINCE, (None, 0.0))
    if waiting != layout:
        st.session_state[_SINCE] = layout, time.monotonic()
    elif (running is None or running.layout != layout) and (
        time.monotonic() - since >= REST_AFTER_SECONDS
    ):
        _start(service, layout, key=_REST)
    elif running is not None and running.layout == layout and running.job.state == "done":
        running.job.answer()  # the service then knows all programs
        st.rerun()
    elif running is not None and running.layout == layout and running.job.finished:
        return  # it failed, or another job took its place
    if say_so:
        st.caption("The other programs are not partitioned yet …")


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
                state[_FAILED] = (layout, str(error))
                return True
    if service.known_programs(layout, needed(layout)) is not None:
        return True
    _start(service, layout)
    return False


def _start(service: Inspection, layout: Layout, key: str = _RUNNING) -> None:
    now = key == _RUNNING
    job = service.start_propagation(layout, needed(layout) if now else (), now)
    running = _Running(layout, job)
    # Streamlit drops the state of a session some time after its tab is closed.
    weakref.finalize(running, job.cancel)
    st.session_state[key] = running
