"""The shard maps of one array in every layout: chosen once, cut once, zoomed once."""

from __future__ import annotations

import math

import streamlit as st

from inspector.compare import difference
from inspector.compare.board import Board
from inspector.core.snapshot import Array, Mesh, Snapshot
from inspector.figures.block_map import split_dimensions
from inspector.figures.linked_maps import Cut, cut_of, linked_maps, panel
from inspector.media.streamlit import chart, page_width, screenshot_mode, selection
from inspector.media.streamlit.plain_text import plain

KEY = "board_array"

Held = list[tuple[Array | None, Mesh | None]]


def show(board: Board) -> None:
    """Choose an array, and see it in every layout."""
    paths = paths_of(board)
    if not paths:
        st.info("No layout of the board has an array.", icon=":material/block:")
        return
    if st.session_state.get(KEY) not in paths:
        st.session_state[KEY] = _first(board, paths)
    with screenshot_mode.controls("maps"):
        path = st.selectbox("Array", paths, key=KEY, label_visibility="collapsed")
    held: Held = [(_array(pin.snapshot, path), pin.snapshot.mesh) for pin in board.pins]
    known = [
        (array, mesh)
        for array, mesh in held
        if array is not None and array.shape is not None and mesh is not None
    ]
    if not known:
        st.info(
            plain(f"No layout knows both the mesh and the shape of {path}: no map can be drawn."),
            icon=":material/block:",
        )
        return
    # The baseline's dimensions, or those of the first layout that has the array.
    array, _ = held[board.baseline]
    lead = array if any(array is one for one, _ in known) else known[0][0]
    cut = _cut(lead, [pair for pair in known if len(pair[0].shape) == len(lead.shape)])
    figure = linked_maps(
        [
            panel(pin.name, array, mesh, cut, lead.shape)
            for pin, (array, mesh) in zip(board.pins, held, strict=True)
        ],
        path,
        cut,
        width_px=screenshot_mode.content_px(page_width.content_px()),
    )
    chart.draw(figure, "board_maps", alt=f"Shard maps of {path} in every layout")
    if screenshot_mode.on():
        return
    st.caption(
        "Within a map, the same colour is the same block. Drag in one map to zoom into the same elements in "
        "all; a double click leads back."
    )


def paths_of(board: Board) -> list[str]:
    """The paths of all arrays, those of the baseline first."""
    order = [board.pins[board.baseline], *board.pins]
    return list(dict.fromkeys(array.path for pin in order for array in pin.snapshot.arrays))


def _first(board: Board, paths: list[str]) -> str:
    """The array of the Layout page if it is here, else the largest parameter of the baseline."""
    chosen = st.session_state.get(selection.KEY)
    if chosen in paths:
        return chosen
    arrays = board.pins[board.baseline].snapshot.arrays
    params = [array for array in arrays if array.group == "params"] or arrays
    return max(params, key=_size).path if params else paths[0]


def _size(array: Array) -> tuple[int, int]:
    """By bytes, and by elements where no bytes are known."""
    return array.bytes or 0, math.prod(array.shape) if array.shape is not None else 0


def _array(found: Snapshot, path: str) -> Array | None:
    """The array, its spec without mesh axes that split nothing."""
    array = next((array for array in found.arrays if array.path == path), None)
    return None if array is None else difference.without_idle_axes(array, found.mesh)


def _cut(lead: Array, held: list[tuple[Array, Mesh]]) -> Cut:
    """Which two dimensions are drawn, and where the others are cut: chosen once for all maps."""
    at_first = cut_of([pair for pair in held if pair[0] is lead] + held)
    assert at_first is not None, "somebody holds the array"
    rank = len(lead.shape)
    if rank < 3:
        return at_first
    key = f"board_dimensions:{lead.path}"
    with screenshot_mode.controls(
        "map_cut", horizontal=True, vertical_alignment="bottom", gap="medium"
    ):
        chosen = st.multiselect(
            "The two dimensions that are drawn",
            range(rank),
            default=[at_first.rows, at_first.columns],
            max_selections=2,
            format_func=lambda dimension: _named(lead, dimension),
            key=key,
            width=420,
        )
        shown = sorted(chosen) if len(chosen) == 2 else [at_first.rows, at_first.columns]
        split = sorted(
            {
                dimension
                for array, mesh in held
                for dimension in split_dimensions(array, mesh)
                if dimension not in shown
            }
        )
        at = {
            dimension: st.slider(
                f"Cut {plain(_named(lead, dimension))} at",
                0,
                max(lead.shape[dimension] - 1, 1),
                key=f"board_cut:{lead.path}:{dimension}",
                width=260,
            )
            for dimension in split
        }
    return Cut(shown[0], shown[1], at)


def _named(array: Array, dimension: int) -> str:
    logical = array.logical_axes[dimension] if array.logical_axes else None
    name = f"dim {dimension}" + (f" · {logical}" if logical else "")
    return f"{name} · {array.shape[dimension]}"
