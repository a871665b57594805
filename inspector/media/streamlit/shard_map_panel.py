"""One array: cut into its blocks, and beside it the mesh, coloured by the block that each device holds."""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st

from inspector.core import sharding
from inspector.core.formatting import dimension_text
from inspector.core.snapshot import Array, Mesh, Snapshot
from inspector.figures.block_map import block_map, split_dimensions, why_no_map
from inspector.figures.mesh_map import mesh_map
from inspector.layout import Layout
from inspector.media.streamlit import (
    chart,
    page_width,
    render,
    screenshot_mode,
    selection,
    torus_section,
)
from inspector.media.streamlit.plain_text import plain
from inspector.sections import array as array_section
from inspector.sections import collectives, unknown


def show(found: Snapshot, layout: Layout | None) -> None:
    """Choose an array, and see both maps of it."""
    missing = unknown.no_arrays(found) or unknown.no_mesh(found)
    if missing is not None:
        render.show([missing])
        return
    mesh = found.mesh
    array = selection.selected(found)
    st.selectbox(
        "Array",
        [candidate.path for candidate in found.arrays],
        key=selection.KEY,
        label_visibility="collapsed",
    )
    reason = why_no_map(array, mesh)
    if reason is not None:
        st.info(plain(reason), icon=":material/block:")
        return
    rows, columns, at = _arrangement(array, mesh)
    # Both are made before one is sent, so that the browser draws them in one go.
    blocks, devices = _maps(array, mesh, rows, columns, at)
    left, right = page_width.halves()
    with left:
        _chart(blocks, "block_map", array)
    with right:
        _chart(devices, "mesh_map", array)
        render.show(array_section.why(array, found, layout))
    said = "The same colour is the same data."
    if not screenshot_mode.on():
        said += " Click a block or a device to single it out; hover for index ranges, bytes and replicas."
    st.caption(said)
    _show_shards(array, found)
    render.show(collectives.of_array(array, found))
    torus_section.show(found)


def _show_shards(array: Array, found: Snapshot) -> None:
    # A hidden table costs the browser as much as a visible one, so it is drawn when it is opened.
    drawer = st.expander("Shards by device", key="shards_drawer", on_change="rerun")
    if drawer.open:
        with drawer:
            render.show(
                [array_section.attributes(array, found), array_section.shards(array, found)]
            )


def prepare(found: Snapshot) -> None:
    """Make the maps that `show` will draw, if it draws those of the array's own arrangement.

    Called before anything of a page is sent: the browser is busy with the first part of a page when the
    rest comes, so that it is quicker if all comes at once.
    """
    if found.arrays and found.mesh is not None:
        array = selection.selected(found)
        if why_no_map(array, found.mesh) is None:
            _maps(array, found.mesh, None, None, {})


def _maps(
    array: Array,
    mesh: Mesh,
    rows: tuple[int, ...] | None,
    columns: tuple[int, ...] | None,
    at: dict[int, int],
) -> tuple[go.Figure, go.Figure]:
    """Both maps; those drawn last are kept, for most that a person does on a page leaves them as they are."""
    highlight, width_px = _highlighted(array, mesh), page_width.half_px()
    asked = array, mesh, rows, columns, at, highlight, width_px
    kept = st.session_state.get("maps")
    if kept is None or kept[0] != asked:
        kept = (
            asked,
            (
                block_map(array, mesh, rows, columns, at, highlight=highlight, width_px=width_px),
                mesh_map(array, mesh, highlight=highlight, width_px=width_px),
            ),
        )
        st.session_state["maps"] = kept
    return kept[1]


def _chart(figure: go.Figure, name: str, array: Array) -> None:
    chart.show(
        figure,
        name,
        alt=f"{name.replace('_', ' ').capitalize()} of {array.path}",
        on_pick=lambda value: _pick((array.path, name, value)),
    )


def _pick(picked: tuple[str, str, int | None]) -> None:
    # A second click on the same place, or a click beside everything, lets go of it.
    letting_go = picked[2] is None or picked == st.session_state.get("picked")
    st.session_state["picked"] = None if letting_go else picked


def _highlighted(array: Array, mesh: Mesh) -> int | None:
    """The block that was picked in either map: by its number, or by a device that holds it."""
    path, name, value = st.session_state.get("picked") or (None, None, None)
    placement = sharding.place_array(array, mesh)
    if path != array.path or placement is None:
        return None
    if name == "mesh_map":
        return int(placement.block[mesh.devices.index(value)]) if value in mesh.devices else None
    return value if value in placement.block else None


def _arrangement(
    array: Array, mesh: Mesh
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None, dict[int, int]]:
    """Which dimensions go along each side, and at which index the others are cut, for rank 3 and up."""
    rank = len(array.shape)
    if rank < 3:
        return None, None, {}
    names = {dimension: dimension_text(array, mesh, dimension) for dimension in range(rank)}
    split = split_dimensions(array, mesh)
    at_first = _laid_out_at_first(rank, split)
    at: dict[int, int] = {}
    with st.expander("Lay out dimensions"):
        laid_out = st.multiselect(
            "Dimensions side by side, the outer first; the others are whole or cut at one index",
            range(rank),
            default=at_first,
            format_func=lambda dimension: names[dimension],
            key=f"laid_out:{array.path}",
        )
        for dimension in split:
            if dimension not in laid_out:
                at[dimension] = st.slider(
                    f"Index along {plain(names[dimension])}", 0, array.shape[dimension] - 1
                )
    if laid_out == at_first:
        return None, None, {}  # the figure's own arrangement
    # The last dimension laid out runs along the rows of the page, as text does.
    half = len(laid_out) // 2 if len(laid_out) > 1 else 0
    return tuple(laid_out[:half]), tuple(laid_out[half:]), at


def _laid_out_at_first(rank: int, split: tuple[int, ...]) -> list[int]:
    chosen = list(split)
    for dimension in reversed(range(rank)):
        if len(chosen) < 2 and dimension not in chosen:
            chosen.append(dimension)
    return sorted(chosen)
