"""The tree of PartitionSpecs: as a picture sized by bytes, and as text to copy."""

from __future__ import annotations

import streamlit as st

from inspector.core.snapshot import Snapshot
from inspector.figures.palette import styles_of_specs
from inspector.figures.spec_tree import spec_tree
from inspector.figures.text_tree import text_tree
from inspector.layout import Layout
from inspector.media.streamlit import (
    chart,
    not_known,
    page_width,
    selection,
    state_choice,
)


def show(found: Snapshot, _: Layout | None) -> None:
    """The icicle, and the text tree under it."""
    if not_known.no_arrays(found):
        return
    arrays = state_choice.choose(found, key="tree_groups")
    styles = styles_of_specs(found.arrays, found.mesh)
    figure = spec_tree(arrays, found.mesh, styles, width_px=page_width.content_px())
    if figure is None:
        st.info("The size of no array here is known, so that nothing can be drawn to size.")
    else:
        chart.show(
            figure, "spec_tree", alt="Arrays by bytes and PartitionSpec", on_pick=selection.select
        )
    folded = st.toggle(
        "Fold identical layers",
        value=True,
        key="tree_folded",
        help="Layers that differ only in number.",
    )
    st.code(text_tree(arrays, folded), language=None, wrap_lines=False)
