"""Partitioned programs of the plans on the board, made in the background one after the other, and their runs.

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
from inspector.media.streamlit.panels import run_panel
from inspector.media.streamlit.session import asked, chip_choice, pins, planning, screenshot_mode
from inspector.records.snapshot import Snapshot
from inspector.sharding.abstract import PartitionedPrograms
from inspector.text.formatting import and_text, counted

POLL_SECONDS = 0.3
_NEWEST = "board_programs"


def completed(service: Inspection, board: Board) -> Board:
    """Return the board with the programs of its plans, if they are known."""
    pins = tuple(replace(pin, snapshot=_completed(service, pin.snapshot)) for pin in board.pins)
    return board if pins == board.pins else replace(board, pins=pins)


def known(board: Board) -> Board | None:
    """Return the board without the plans whose programs `show_missing` partitions.

    Return None if the baseline is one of them: nothing can be compared with it yet.
    """
    if _missing(board.snapshots[board.baseline]) is not None:
        return None
    for place in reversed(range(len(board.pins))):
        if _missing(board.snapshots[place]) is not None:
            board = board.without(place)
    return board


def show_missing(service: Inspection, board: Board) -> None:
    """Partition the plans without programs, say so, and rerun the page whenever those of a plan are known."""
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


def show_runs(service: Inspection, board: Board) -> None:
    """Draw the progress of started layouts, then the button for the others."""
    plans = _plans(board)
    if not plans:
        return
    with screenshot_mode.controls("board_runs", gap="small"):
        left = []
        for name, layout, planned in plans:
            if asked.of(_job(layout)).job is not None:
                st.caption(f"**{plain(name)}**")
                asked.show_progress(_job(layout))
            else:
                asked.show_failure(_job(layout), layout.key())
                if service.why_not_run(layout, planned) is None:
                    left.append((layout, planned))
        if left and st.button(
            f"Compile all {len(left)}" if len(left) > 1 else "Compile",
            key="board_compile_all",
            icon=":material/play_arrow:",
            help=f"{counted(len(left), 'pinned layout')} {'is' if len(left) == 1 else 'are'} "
            "only planned. Compile for TPU and GPU targets; compile and run for emulated and local devices.",
        ):
            for layout, planned in left:
                _start_run(service, layout, planned)
            st.rerun()


def running(board: Board) -> list[str]:
    """Return the names of the layouts that are being compiled or run."""
    return [name for name, layout, _ in _plans(board) if asked.of(_job(layout)).job is not None]


def _plans(board: Board) -> list[tuple[str, Layout, Snapshot]]:
    """Return the name, layout and plan of each pin that is only planned; equal layouts once."""
    plans: dict[str, tuple[str, Layout, Snapshot]] = {}
    for pin in board.pins:
        layout = layout_of(pin.snapshot)
        if pin.snapshot.source.kind == "plan" and layout is not None:
            plans.setdefault(layout.key(), (pin.name, layout, pin.snapshot))
    return [*plans.values()]


def _start_run(service: Inspection, layout: Layout, planned: Snapshot) -> None:
    def then(run: Snapshot) -> None:
        pins.replace_plan(layout, run)

    asked.of(_job(layout)).again(run_panel.request(service, layout, planned, then))


def _job(layout: Layout) -> str:
    return f"board_run:{layout.key()}"
