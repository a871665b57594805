"""Compare a layout with the current one: pin the plans of both, and open the board."""

from __future__ import annotations

import streamlit as st

from inspector.compare import board as boards
from inspector.compare.board import Board
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import page_switch, pins
from inspector.media.streamlit.plain_text import plain
from inspector.service.inspection import Inspection

_CURRENT = "Current layout"


def compare(service: Inspection, current: Layout, name: str, other: Layout) -> None:
    """Open the board with both plans, or draw why they cannot be pinned."""
    try:
        with st.spinner("Propagating both layouts …"):
            pins.put(_with_pair(service, current, name, other))
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
    else:
        page_switch.to(page_switch.BOARD)


def _with_pair(service: Inspection, current: Layout, name: str, other: Layout) -> Board:
    """Return the board with the plans of the current layout, as the baseline, and of the other one.

    Raises:
      InvalidInput: the board is full.
    """
    board = pins.board()
    for title, one in ((_CURRENT, current), (name, other)):
        position = next(
            (n for n, pin in enumerate(board.pins) if _is_plan(pin.snapshot, one)), None
        )
        if position is None:
            position = len(board.pins)
            snapshot = service.with_programs(service.plan(one), one)
            board = board.pinned(boards.free_name(title, board.names), snapshot)
        if one is current:
            board = board.compared_to(position)
    return board


def _is_plan(snapshot: Snapshot, layout: Layout) -> bool:
    return snapshot.source.kind == "plan" and snapshot.layout == layout.to_json()
