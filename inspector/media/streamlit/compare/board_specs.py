"""The board's PartitionSpecs: as a table, and as trees."""

import streamlit as st

from inspector.compare import difference
from inspector.compare.board import Board
from inspector.compare.splits import without_idle_axes
from inspector.core.formatting import counted
from inspector.core.totals import STATE_GROUPS
from inspector.figures.spec_tree import spec_tree
from inspector.figures.tree_rows import Column
from inspector.media.streamlit.parts import chart, render
from inspector.media.streamlit.session import kept_field, screenshot_mode, toggled_rows
from inspector.media.streamlit.session.toggled_rows import ToggledRows
from inspector.sections import comparison

PARTS = {"Parameters": ("params",), "Whole train state": STATE_GROUPS}


def show_matrix(board: Board) -> None:
    """Draw the rows that differ, and on demand the others."""
    rows = difference.spec_rows(board.snapshots)
    if not rows:
        st.info("No pinned layout has a train state.", icon=":material/block:")
        return
    different = [row for row in rows if row.differs]
    equal = sum(len(row.paths) for row in rows if not row.differs)
    everything = not different
    if equal and different:
        with screenshot_mode.controls("specs"):
            everything = st.toggle(
                f"Show {counted(equal, 'array')} with equal specs",
                key="board_equal_specs",
            )
    elif everything and len(board.pins) > 1:
        st.success(
            f"All {counted(equal, 'array')} have the same spec in every layout.",
            icon=":material/check:",
        )
    shown = rows if everything else different
    render.show([comparison.spec_table("spec_table", board.named, shown)])


def show_trees(board: Board) -> None:
    """Draw the choice of a part of the train state, and its tree in every layout."""
    with screenshot_mode.controls("trees"):
        part = kept_field.choose("Part of the train state", list(PARTS), "board_tree_part")
    columns = [_tree(board, place, PARTS[part]) for place in range(len(board.pins))]
    arrays = [array for column in columns for array in column.arrays]
    toggled = ToggledRows("board_tree", arrays)
    figure = spec_tree(columns, None, toggled=toggled.keys(), width_px=screenshot_mode.content_px())
    if figure is None:
        st.info("These layouts have no arrays in this part.", icon=":material/block:")
        return
    chart.draw(figure, "board_tree", alt="Trees of PartitionSpecs", on_pick=toggled.pick)
    with screenshot_mode.controls("tree_caption"):
        st.caption(toggled_rows.CAPTION)


def _tree(board: Board, place: int, groups: tuple[str, ...]) -> Column:
    """Return the arrays of one layout, and the paths that differ from the baseline."""
    name, snapshot = board.named[place]
    arrays = tuple(
        without_idle_axes(array, snapshot.mesh_of(array))
        for array in snapshot.arrays
        if array.group in groups
    )
    if place == board.baseline:
        return Column(name, arrays, None)
    pairs = difference.arrays(board.snapshots[board.baseline], snapshot)
    return Column(name, arrays, {pair.path for pair in pairs if pair.changed})
