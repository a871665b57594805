"""Run or compile all plans of the board, with one list of their progress."""

import streamlit as st

from inspector.compare.board import Board
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout, layout_of
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import run_panel
from inspector.media.streamlit.session import asked, pins, screenshot_mode
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import counted


def show(service: Inspection, board: Board) -> None:
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
                _start(service, layout, planned)
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


def _start(service: Inspection, layout: Layout, planned: Snapshot) -> None:
    def then(run: Snapshot) -> None:
        pins.replace_plan(layout, run)

    asked.of(_job(layout)).again(run_panel.request(service, layout, planned, then))


def _job(layout: Layout) -> str:
    return f"board_run:{layout.key()}"
