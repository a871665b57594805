"""All arrays × all devices by bytes held, and a small shard map of every parameter."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.figures.overview import held, overview
from inspector.figures.palette import styles_of_specs
from inspector.figures.small_multiples import small_multiples
from inspector.layout import Layout
from inspector.media.streamlit import (
    chart,
    not_known,
    page_width,
    selection,
    state_choice,
)


def show(found: Snapshot, _: Layout | None) -> None:
    """The overview, and under it the small maps."""
    if not_known.no_arrays(found) or not_known.no_mesh(found):
        return
    arrays = state_choice.choose(found, key="overview_groups", whole_first=True)
    styles = styles_of_specs(found.arrays, found.mesh)
    known = any(held(array, found.mesh) is not None for array in arrays)
    maps = small_multiples(
        [array for array in arrays if array.group == "params"] or arrays,
        found.mesh,
        width_px=page_width.content_px(),
    )
    if known:
        chart.show(
            overview(arrays, found.mesh, styles, width_px=page_width.content_px()),
            "overview",
            alt="Bytes that each device holds of each array",
            on_pick=selection.select,
        )
    elif maps is not None:
        not_known.show("How many bytes a device holds is unknown: of no array here are they known.")
    else:
        not_known.show(
            "What each device holds is unknown: of no array here are shape and place known."
        )
        return
    if maps is not None:
        chart.show(
            maps,
            "small_multiples",
            alt="A small shard map of each parameter",
            on_pick=selection.select,
        )
    st.caption("Click a row's square or a small map to open that array in the shard map.")
