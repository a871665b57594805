"""The shard map: one array cut into blocks, and the mesh in the colors of the blocks."""

from __future__ import annotations

import functools

import plotly.graph_objects as go
import streamlit as st

from inspector import figures
from inspector.answers import array as array_section
from inspector.answers import collectives, devices, unknown
from inspector.layout import Layout
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, render
from inspector.media.streamlit.session import screenshot_mode, selection
from inspector.records.snapshot import Array, Mesh, Snapshot
from inspector.sharding import placement as sharding
from inspector.sharding.sharding_text import dimension_text


def show_torus(snapshot: Snapshot) -> None:
    """Draw them, if the Snapshot contains the machine."""
    target = devices.target_of(snapshot)
    if target is None:
        return
    st.markdown("##### Mesh on the machine")
    st.markdown(plain(target.sentence))
    render.show([devices.links(snapshot, target)])


def show(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the choice of an array, its two maps, and the details of the array."""
    missing = unknown.no_arrays(snapshot) or unknown.no_mesh(snapshot)
    array = None if missing else selection.selected(snapshot)
    mesh = None if array is None else snapshot.mesh_of(array)
    if array is None or mesh is None:
        render.show([missing] if missing else [])
        return
    selection.draw([candidate.path for candidate in snapshot.arrays])
    reason = figures.block_map.why_no_map(array, mesh)
    if reason is not None:
        st.info(plain(reason), icon=":material/block:")
        return
    drawn = (array, mesh, _arrangement(array, mesh), _highlighted(array, mesh), page_width.half_px())
    blocks, devices = _maps(*drawn)
    left, right = page_width.halves()
    with left:
        _chart(blocks, "block_map", array)
    with right:
        _chart(devices, "mesh_map", array)
        chart.end_of_figures()
        render.show(array_section.why(array, snapshot, layout))
    render.show(array_section.notes(array))
    caption = "Same color, same data."
    if not screenshot_mode.on():
        caption += " Click a block or a device to highlight it; hover for index ranges and bytes."
    st.caption(caption)
    _show_shards(array, snapshot)
    render.show(collectives.of_array(array, snapshot))
    show_torus(snapshot)


def _show_shards(array: Array, snapshot: Snapshot) -> None:
    # A hidden table would cost the browser as much as a visible one.
    drawer = st.expander("Shards by device", key="shards_drawer", on_change="rerun")
    if drawer.open:
        with drawer:
            render.show([array_section.attributes(array, snapshot), array_section.shards(array, snapshot)])


@functools.lru_cache(maxsize=64)
def _maps(
    array: Array,
    mesh: Mesh,
    arrangement: figures.block_grid.Arrangement,
    highlight: int | None,
    width_px: int,
) -> tuple[go.Figure, go.Figure]:
    """Return the block map and the mesh map. Most changes on a page leave both as they are."""
    return (
        figures.block_map.block_map(array, mesh, arrangement, highlight=highlight, width_px=width_px),
        figures.mesh_map.mesh_map(array, mesh, highlight=highlight, width_px=width_px),
    )


def _chart(figure: go.Figure, name: str, array: Array) -> None:
    chart.draw(
        figure,
        name,
        alt=f"{name.replace('_', ' ').capitalize()} of {array.path}",
        on_pick=lambda value: _pick((array.path, name, value)),
    )


def _pick(picked: tuple[str, str, int | None]) -> None:
    # A second click, or a click outside of all cells, removes the highlight.
    remove = picked[2] is None or picked == st.session_state.get("picked")
    st.session_state["picked"] = None if remove else picked


def _highlighted(array: Array, mesh: Mesh) -> int | None:
    """Return the block that was clicked: by its number, or by a device that holds it."""
    path, name, value = st.session_state.get("picked") or (None, None, None)
    placement = sharding.place_array(array, mesh) if path == array.path else None
    if placement is None:
        return None
    if name == "mesh_map":
        return int(placement.block[mesh.devices.index(value)]) if value in mesh.devices else None
    return value if value in placement.block else None


def _arrangement(array: Array, mesh: Mesh) -> figures.block_grid.Arrangement:
    """Draw the choice of dimensions for an array of rank 3 or more, and return it."""
    shape = array.shape or ()
    rank = len(shape)
    if rank < 3:
        return figures.block_grid.Arrangement()
    names = {dimension: dimension_text(array, mesh, dimension) for dimension in range(rank)}
    split = figures.block_map.split_dimensions(array, mesh)
    others = [dimension for dimension in reversed(range(rank)) if dimension not in split]
    default = sorted((*split, *others[: max(2 - len(split), 0)]))
    at: dict[int, int] = {}
    with st.expander("Dimensions"):
        drawn = st.multiselect(
            "Drawn dimensions, outer first; the others are whole or cut at one index",
            range(rank),
            default=default,
            format_func=lambda dimension: names[dimension],
            key=f"laid_out:{array.path}",
        )
        for dimension in split:
            if dimension not in drawn:
                at[dimension] = st.slider(f"Index along {plain(names[dimension])}", 0, shape[dimension] - 1)
    if drawn == default:
        return figures.block_grid.Arrangement()
    # The last dimension runs along the lines of the page, as in printed arrays.
    half = len(drawn) // 2 if len(drawn) > 1 else 0
    return figures.block_grid.Arrangement(tuple(drawn[:half]), tuple(drawn[half:]), tuple(at.items()))
