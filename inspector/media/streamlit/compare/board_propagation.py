"""Partitioned programs of the plans on the board, made in the background one after the other.

A link contains only layouts, and a plan that was pinned early has no programs. Without them, the time and
the traffic of a layout are unknown.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace

import streamlit as st

from inspector.compare import board_link
from inspector.compare.board import Board
from inspector.core.abstract import PropagatedPrograms
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout import Layout
from inspector.layout.plan import NOT_PROPAGATED, with_programs
from inspector.service.engine import Job
from inspector.service.inspection import Inspection

POLL_SECONDS = 0.3
_STATE = "board_propagation"


@dataclass(eq=False)
class _Work:
    """The propagation that runs for the board of a session, and the layouts that cannot be partitioned."""

    layout: Layout | None = None
    job: Job[PropagatedPrograms] | None = None
    failed: list[tuple[Layout, str]] = field(default_factory=list)


def completed(service: Inspection, board: Board) -> Board:
    """Return the board with the programs of its plans, as far as they are known."""
    pins = tuple(replace(pin, snapshot=_completed(service, pin.snapshot)) for pin in board.pins)
    return board if pins == board.pins else replace(board, pins=pins)


def show(service: Inspection, board: Board) -> None:
    """Propagate the plans without programs, say so, and rerun the page when all are known."""
    waiting = [layout for pin in board.pins if (layout := _missing(pin.snapshot)) is not None]
    if waiting:
        st.fragment(_poll, run_every=POLL_SECONDS)(service, waiting)


def _poll(service: Inspection, waiting: list[Layout]) -> None:
    work = _work()
    if work.job is not None and work.job.finished:
        _finish(work)
    left = [layout for layout in waiting if not _is_known(service, work, layout)]
    if not left:
        st.rerun()
    if work.job is None:
        _start(service, work, left[0])
    st.info(
        f"Partitioning the programs of {counted(len(left), 'layout')}, without a compile …",
        icon=":material/hourglass_top:",
    )


def _finish(work: _Work) -> None:
    assert work.job is not None and work.layout is not None
    job, layout, work.job, work.layout = work.job, work.layout, None, None
    try:
        job.answer()  # the service then knows the programs
    except InvalidInput as error:
        work.failed.append((layout, str(error)))


def _start(service: Inspection, work: _Work, layout: Layout) -> None:
    work.layout = layout
    work.job = service.start_propagation(layout, layout.entry.programs)
    # Streamlit drops the state of a session some time after its tab is closed.
    weakref.finalize(work, work.job.cancel)


def _completed(service: Inspection, snapshot: Snapshot) -> Snapshot:
    layout = _missing(snapshot)
    if layout is None:
        return snapshot
    programs = service.known_programs(layout, layout.entry.programs)
    if programs is not None:
        return with_programs(snapshot, programs)
    reason = next((why for failed, why in _work().failed if failed == layout), None)
    if reason is None:
        return snapshot
    return replace(snapshot, findings=(*snapshot.findings, Finding("note", NOT_PROPAGATED, reason)))


def _missing(snapshot: Snapshot) -> Layout | None:
    """Return the layout of a plan whose programs are not known yet."""
    if snapshot.source.kind != "plan" or snapshot.programs:
        return None
    if any(one.code == NOT_PROPAGATED for one in snapshot.findings):
        return None
    return board_link.layout_of(snapshot)


def _is_known(service: Inspection, work: _Work, layout: Layout) -> bool:
    if service.known_programs(layout, layout.entry.programs) is not None:
        return True
    return any(failed == layout for failed, _ in work.failed)


def _work() -> _Work:
    found: _Work = st.session_state.setdefault(_STATE, _Work())
    return found
