"""Compare a layout with the current one: pin the results of both, and open the board."""

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.core.errors import InvalidInput
from inspector.layout import Layout, presets
from inspector.media.streamlit.page import page_switch
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import finished_runs, pins
from inspector.service.inspection import Inspection


def compare(
    service: Inspection, current: Layout, name: str, other: Layout, *, searched: bool = False
) -> None:
    """Open the board with both layouts, or draw why they cannot be pinned.

    Both are pinned as compiled or measured, or both as planned: figures of a plan and of a compiled layout
    have no ratio.

    searched: whether each is pinned as a search found it, compiled or not.
    """
    try:
        with st.spinner("Partitioning both layouts …"):
            pins.put(_with_pair(service, current, name, other, searched))
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
    else:
        page_switch.to(page_switch.BOARD)


def _with_pair(service: Inspection, current: Layout, name: str, other: Layout, searched: bool) -> Board:
    """Return the board with the current layout, as the baseline, and the other one.

    Raises:
      InvalidInput: the board is full.
    """
    board = pins.board()
    runs = [finished_runs.run_of(service, layout) for layout in (current, other)]
    if not searched and None in runs:
        runs = [None, None]
    for title, layout, run in zip((presets.title(current), name), (current, other), runs, strict=True):
        wanted = (layout.to_json(), run is None)
        pinned = [(pin.snapshot.layout, pin.snapshot.source.kind == "plan") for pin in board.pins]
        position = pinned.index(wanted) if wanted in pinned else len(pinned)
        if position == len(pinned):
            snapshot = run or service.with_programs(service.plan(layout), layout)
            board = board.pinned(boards.free_name(title, board.names), snapshot)
        if layout is current:
            board = board.compared_to(position)
    return board
