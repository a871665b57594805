"""The board's PartitionSpecs: parameters × layouts."""

from __future__ import annotations

import streamlit as st

from inspector.compare import difference
from inspector.compare.board import Board
from inspector.core.formatting import counted
from inspector.figures.spec_matrix import spec_matrix
from inspector.media.streamlit import chart, page_width, screenshot_mode


def show(board: Board) -> None:
    """Draw the rows that differ, and on demand the others."""
    rows = difference.spec_rows(board.snapshots)
    if not rows:
        st.info("No layout of the board has a train state.", icon=":material/block:")
        return
    different = [row for row in rows if row.differs]
    equal = sum(len(row.paths) for row in rows if not row.differs)
    everything = len(board.pins) == 1
    if equal and different:
        with screenshot_mode.controls("specs"):
            everything = st.toggle(
                f"Show {counted(equal, 'array')} with equal specs",
                key="board_equal_specs",
            )
    elif not different and not everything:
        st.success(
            f"All {counted(equal, 'array')} have the same spec in every layout.",
            icon=":material/check:",
        )
        everything = True
    figure = spec_matrix(
        rows if everything else different,
        board.names,
        board.baseline,
        width_px=screenshot_mode.content_px(page_width.content_px()),
    )
    if figure is not None:
        chart.draw(figure, "spec_matrix", alt="PartitionSpecs in every layout")
