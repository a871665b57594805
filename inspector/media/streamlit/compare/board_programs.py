"""Partitioned programs of the plans on the board, made in the background one after the other.

A link contains only layouts, and a plan that was pinned early has no programs. Without them, the time and
the traffic of a layout are unknown.
"""

from dataclasses import replace

import streamlit as st

from inspector.compare.board import Board
from inspector.jobs.inspection import Inspection
from inspector.jobs.request import Outcome
from inspector.layout import Layout, layout_of
from inspector.layout.plan import NOT_PARTITIONED
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import asked, chip_choice, planning
from inspector.records.snapshot import Snapshot
from inspector.sharding.abstract import PartitionedPrograms
from inspector.text.formatting import and_text

POLL_SECONDS = 0.3
_NEWEST = "board_programs"


def completed(service: Inspection, board: Board) -> Board:
    """Return the board with the programs of its plans, if they are known."""
    pins = tuple(replace(pin, snapshot=_completed(service, pin.snapshot)) for pin in board.pins)
    return board if pins == board.pins else replace(board, pins=pins)


def known(board: Board) -> Board | None:
    """Return the board without the plans whose programs `show` propagates.

    Return None if the baseline is one of them: nothing can be compared with it yet.
    """
    if _missing(board.snapshots[board.baseline]) is not None:
        return None
    for place in reversed(range(len(board.pins))):
        if _missing(board.snapshots[place]) is not None:
            board = board.without(place)
    return board


def show(service: Inspection, board: Board) -> None:
    """Propagate the plans without programs, say so, and rerun the page whenever those of a plan are known."""
    waiting = {pin.name: layout for pin in board.pins if (layout := _missing(pin.snapshot)) is not None}
    if waiting:
        st.fragment(_poll, run_every=POLL_SECONDS)(service, waiting)


def _poll(service: Inspection, waiting: dict[str, Layout]) -> None:
    """waiting: the layouts by the names of their pins."""
    if any(_outcome(service, layout).ended for layout in waiting.values()):
        st.rerun()
    _outcome(service, next(iter(waiting.values())), start=True)
    st.info(
        f"Computing {plain(and_text(list(waiting)))}: the programs are partitioned, without a compile …",
        icon=":material/hourglass_top:",
    )


def _completed(service: Inspection, snapshot: Snapshot) -> Snapshot:
    layout = _missing(snapshot)
    return snapshot if layout is None else planning.added(snapshot, _outcome(service, layout))


def _missing(snapshot: Snapshot) -> Layout | None:
    """Return the layout of a plan whose programs are not known yet."""
    if snapshot.source.kind != "plan" or snapshot.programs:
        return None
    if any(finding.code == NOT_PARTITIONED for finding in snapshot.findings):
        return None
    return layout_of(snapshot)


def _outcome(service: Inspection, layout: Layout, start: bool = False) -> Outcome[PartitionedPrograms]:
    request = service.programs(layout, layout.programs, platforms=chip_choice.platforms())
    return asked.of(_NEWEST, cancels=False).ask(request, start)
