"""The tab *Arrays*: views of all arrays, as a table, a tree, by device, by rule, and inside the programs."""

from collections.abc import Callable, Mapping

import streamlit as st

from inspector.core.snapshot import Array, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.layout import Layout
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.panels import (
    device_panel,
    ledger_panel,
    program_panels,
    shard_map_panel,
)
from inspector.media.streamlit.parts import render, table
from inspector.media.streamlit.session import kept_field, selection, toggled_rows, view_link
from inspector.media.streamlit.session.toggled_rows import ToggledRows
from inspector.sections import arrays, unknown
from inspector.sections.arrays import GROUP_TITLES

View = Callable[[Snapshot, Layout | None], None]
WHOLE = "Whole train state"
PARTS = {
    "Parameters": ("params",),
    "Optimizer state": ("opt_state",),
    WHOLE: STATE_GROUPS,
}


def show(snapshot: Snapshot, layout: Layout | None, instead: Mapping[str, View] | None = None) -> None:
    """Draw the choice of a view, and the view. `instead` has views that the page draws in another way."""
    view = kept_field.draw_one_of("View", view_link.VIEWS, selection.VIEW_KEY)
    {**VIEWS, **(instead or {})}[view](snapshot, layout)


def show_tree(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the tree of PartitionSpecs as a figure and as text to copy."""
    if _cannot_show(snapshot):
        return
    part = _choose_part(snapshot, "tree_groups")
    toggled = ToggledRows("spec_tree", part)
    picks = dict.fromkeys(arrays.picture_keys(snapshot, "spec_tree"), toggled.pick)
    render.show(arrays.tree_pictures(snapshot, part, toggled.keys()), picks)
    st.caption(toggled_rows.CAPTION)
    folded = st.toggle(
        "Fold identical layers",
        value=True,
        key="tree_folded",
        help="Show layers that differ only in their number as one.",
    )
    render.show(arrays.tree_texts(snapshot, part, folded))


def show_table(snapshot: Snapshot, layout: Layout | None) -> None:
    """Draw the maps of the selected array and the reasons for its sharding, then all arrays with filters."""
    if _cannot_show(snapshot):
        return
    shard_map_panel.show(snapshot, layout)
    present = {array.group for array in snapshot.arrays}
    left, right = page_width.beside([3, 2])
    groups = left.pills(
        "Groups",
        [group for group in GROUP_TITLES if group in present],
        selection_mode="multi",
        format_func=GROUP_TITLES.__getitem__,
        key="table_groups",
    )
    words = right.text_input(
        "Filter",
        key="table_filter",
        placeholder="words in path, axes or spec, such as W2 model",
    )
    shown = arrays.by_bytes(arrays.matching(snapshot.arrays, groups or list(present), words))
    if not shown:
        st.info("No array contains all of these words.", icon=":material/search_off:")
        return
    pick = table.array_picker(
        [array.path for array in shown],
        "table_selected",
        f"{len(shown)} of {len(snapshot.arrays)} arrays.",
    )
    render.show([arrays.table(shown)], {"array_table": pick})


def _cannot_show(snapshot: Snapshot) -> bool:
    """Draw the reason if there are no arrays."""
    missing = unknown.no_arrays(snapshot)
    if missing is not None:
        render.show([missing])
    return missing is not None


def _choose_part(snapshot: Snapshot, key: str) -> list[Array]:
    """Draw the choice of a part of the train state and return its arrays."""
    present = {array.group for array in snapshot.arrays}
    names = [name for name, groups in PARTS.items() if present.intersection(groups)] or [WHOLE]
    part = kept_field.choose("Part of the train state", names, key, names[0])
    return [array for array in snapshot.arrays if array.group in PARTS[part]]


_SHOW = (show_table, show_tree, device_panel.show, ledger_panel.show, program_panels.show_train_state)
VIEWS: dict[str, View] = dict(zip(view_link.VIEWS, _SHOW, strict=True))
