"""The board's trees of PartitionSpecs, with the differences from the baseline marked."""

from __future__ import annotations

import streamlit as st

from inspector.compare import difference
from inspector.compare.board import Board
from inspector.core.totals import STATE_GROUPS
from inspector.figures.marked_tree import Column, marked_tree
from inspector.figures.palette import styles_of_specs
from inspector.media.streamlit import chart, page_width, screenshot_mode

PARTS = {"Parameters": ("params",), "Whole train state": STATE_GROUPS}


def show(board: Board) -> None:
    """Draw the choice of a part of the train state, and its tree."""
    with screenshot_mode.controls("trees"):
        part = st.segmented_control(
            "Part of the train state",
            list(PARTS),
            key="board_tree_part",
            default=next(iter(PARTS)),
            required=True,
            label_visibility="collapsed",
        )
    columns = [column_of(board, place, PARTS[part]) for place in range(len(board.pins))]
    # Without a mesh, a spec has the same color in all columns.
    styles = styles_of_specs([array for column in columns for array in column.arrays], None)
    figure = marked_tree(
        columns, styles, width_px=screenshot_mode.content_px(page_width.content_px())
    )
    if figure is None:
        st.info("These layouts have no arrays in this part.", icon=":material/block:")
        return
    chart.draw(figure, "board_tree", alt="Trees of PartitionSpecs")


def column_of(board: Board, place: int, groups: tuple[str, ...]) -> Column:
    """Return the arrays of one layout, and the paths that differ from the baseline.

    The specs are without mesh axes of size 1.
    """
    pin = board.pins[place]
    arrays = tuple(
        difference.without_idle_axes(array, pin.snapshot.mesh)
        for array in pin.snapshot.arrays
        if array.group in groups
    )
    if place == board.baseline:
        return Column(pin.name, arrays, None)
    pairs = difference.arrays(board.pins[board.baseline].snapshot, pin.snapshot)
    return Column(pin.name, arrays, {pair.path for pair in pairs if pair.changed})
