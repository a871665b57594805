"""The board's PartitionSpecs and shard maps: one array in every layout, with one cut and one zoom."""

import streamlit as st

from inspector.answers import comparison
from inspector.compare import difference
from inspector.compare.board import Board
from inspector.compare.splits import without_idle_axes
from inspector.figures.block_map import split_dimensions
from inspector.figures.linked_maps import Cut, cut_of, linked_maps, panel
from inspector.figures.spec_tree import spec_tree
from inspector.figures.tree_rows import LayoutColumn
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, render
from inspector.media.streamlit.session import kept_field, screenshot_mode, selection
from inspector.media.streamlit.session.selection import ToggledRows
from inspector.records.snapshot import Array, Mesh, Snapshot
from inspector.sharding.totals import STATE_GROUPS
from inspector.text.formatting import counted
from inspector.text.printable import one_line

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
        st.caption(selection.CAPTION)


def _tree(board: Board, place: int, groups: tuple[str, ...]) -> LayoutColumn:
    """Return the arrays of one layout, and the paths that differ from the baseline."""
    name, snapshot = board.named[place]
    arrays = tuple(
        without_idle_axes(array, snapshot.mesh_of(array))
        for array in snapshot.arrays
        if array.group in groups
    )
    if place == board.baseline:
        return LayoutColumn(name, arrays, None)
    pairs = difference.arrays(board.snapshots[board.baseline], snapshot)
    return LayoutColumn(name, arrays, {pair.path for pair in pairs if pair.changed})


KEY = "board_array"

Held = list[tuple[Array | None, Mesh | None]]


def show(board: Board) -> None:
    """Draw the choice of an array, and its map in every layout."""
    paths = paths_of(board)
    if not paths:
        st.info("No pinned layout has arrays.", icon=":material/block:")
        return
    st.session_state[KEY] = _first(board, paths)
    with screenshot_mode.controls("maps"):
        path = st.selectbox(
            "Array",
            paths,
            format_func=one_line,
            key=KEY,
            label_visibility="collapsed",
            on_change=lambda: selection.select(st.session_state.get(KEY)),  # for the link
        )
    held: Held = []
    for pin in board.pins:
        shown = _array(pin.snapshot, path)
        held.append((shown, pin.snapshot.mesh_of(shown) if shown else pin.snapshot.mesh))
    known = [
        (array, mesh)
        for array, mesh in held
        if array is not None and array.shape is not None and mesh is not None
    ]
    if not known:
        st.info(
            plain(f"No layout has both the mesh and the shape of {path}."),
            icon=":material/block:",
        )
        return
    # The dimensions are those of the baseline, or of the first layout with the array.
    array, _ = held[board.baseline]
    lead = next((candidate for candidate, _ in known if candidate is array), known[0][0])
    rank = len(lead.shape or ())
    cut = _cut(lead, [pair for pair in known if len(pair[0].shape or ()) == rank])
    figure = linked_maps(
        [
            panel(pin.name, array, mesh, cut, lead.shape or ())
            for pin, (array, mesh) in zip(board.pins, held, strict=True)
        ],
        path,
        cut,
        width_px=screenshot_mode.content_px(),
    )
    chart.draw(figure, "board_maps", alt=f"Shard maps of {path} in every layout")
    if screenshot_mode.on():
        return
    st.caption(
        "Same color, same block of that map. Drag to zoom into the same elements in all maps; double-click "
        "to zoom out."
    )


def paths_of(board: Board) -> list[str]:
    """Return the paths of all arrays, those of the baseline first."""
    order = [board.pins[board.baseline], *board.pins]
    return list(dict.fromkeys(array.path for pin in order for array in pin.snapshot.arrays))


def _first(board: Board, paths: list[str]) -> str:
    """Return the selected array if it is on the board, else the largest parameter of the baseline."""
    chosen: str | None = st.session_state.get(selection.KEY)
    if chosen in paths:
        return chosen
    snapshot = board.pins[board.baseline].snapshot
    return selection.largest_parameter(snapshot).path if snapshot.arrays else paths[0]


def _array(snapshot: Snapshot, path: str) -> Array | None:
    """Return the array; its spec is without mesh axes of size 1."""
    array = next((array for array in snapshot.arrays if array.path == path), None)
    return None if array is None else without_idle_axes(array, snapshot.mesh_of(array))


def _cut(lead: Array, held: list[tuple[Array, Mesh]]) -> Cut:
    """Draw the choice of two dimensions and of the cuts along the others, for all maps."""
    at_first = cut_of([pair for pair in held if pair[0] is lead] + held)
    assert at_first is not None, "a layout has the array"
    shape = lead.shape or ()
    rank = len(shape)
    if rank < 3:
        return at_first
    key = f"board_dimensions:{lead.path}"
    with screenshot_mode.controls("map_cut", horizontal=True, vertical_alignment="bottom", gap="medium"):
        chosen = st.multiselect(
            "Drawn dimensions",
            range(rank),
            default=[at_first.rows, at_first.columns],
            max_selections=2,
            format_func=lambda dimension: _named(lead, dimension),
            key=key,
            width=420,
        )
        shown = sorted(chosen) if len(chosen) == 2 else [at_first.rows, at_first.columns]
        split = {dim for array, mesh in held for dim in split_dimensions(array, mesh)}
        at = {
            dimension: st.slider(
                f"Cut {plain(_named(lead, dimension))} at",
                0,
                max(shape[dimension] - 1, 1),
                key=f"board_cut:{lead.path}:{dimension}",
                width=260,
            )
            for dimension in sorted(split - {*shown})
        }
    return Cut(shown[0], shown[1], at)


def _named(array: Array, dimension: int) -> str:
    logical = array.logical_axes[dimension] if array.logical_axes else None
    name = f"dim {dimension}" + (f" · {logical}" if logical else "")
    return f"{name} · {(array.shape or ())[dimension]}"
