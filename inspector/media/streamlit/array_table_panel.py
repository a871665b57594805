"""All arrays in a table that sorts and filters; a selected row is the array of the shard map."""

from __future__ import annotations

from typing import Any

import streamlit as st

from inspector.core.formatting import logical_text, shape_text, spec_text
from inspector.core.snapshot import Array, Snapshot
from inspector.layout import Layout
from inspector.media.streamlit import not_known, selection, table

GROUP_NAMES = {
    "params": "Parameters",
    "opt_state": "Optimizer state",
    "batch": "Batch",
    "output": "Output",
    "activation": "Activations",
    "gradient": "Gradients",
    "other": "Other",
}


def show(found: Snapshot, _: Layout | None) -> None:
    """Filter, sort and select."""
    if not_known.no_arrays(found):
        return
    groups = [group for group in GROUP_NAMES if any(array.group == group for array in found.arrays)]
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        chosen = st.pills(
            "Groups",
            groups,
            selection_mode="multi",
            format_func=GROUP_NAMES.get,
            key="table_groups",
        )
    with right:
        words = st.text_input(
            "Filter",
            key="table_filter",
            placeholder="words in path, axes or spec, such as W2 model",
        )
    arrays = matching(found, chosen or groups, words)
    if not arrays:
        st.info(
            "No array has all of these words; make the filter shorter.",
            icon=":material/search_off:",
        )
        return
    drawn = columns(arrays)
    event = table.show(
        drawn,
        "array_table",
        on_select="rerun",
        selection_mode="single-row",
        column_config=table.of_numbers(
            drawn,
            {
                "Bytes": st.column_config.NumberColumn(format="localized"),
                "Bytes per device": st.column_config.NumberColumn(format="localized"),
            },
        ),
    )
    if event.selection.rows:
        path = arrays[event.selection.rows[0]].path
        if path != st.session_state.get("table_selected"):
            st.session_state["table_selected"] = path
            selection.select(path)
        st.caption(f"`{path}` is the array of the shard map now.")
    else:
        st.caption(
            f"{len(arrays)} of {len(found.arrays)} arrays. Select a row to see its shard map."
        )


def matching(found: Snapshot, groups: list[str], words: str) -> list[Array]:
    """The arrays of these groups that have every word somewhere in path, type, axes or spec."""
    wanted = words.lower().split()
    return [
        array
        for array in found.arrays
        if array.group in groups and all(word in _searched(array) for word in wanted)
    ]


def columns(arrays: list[Array]) -> dict[str, list[Any]]:
    """An entry an array; sizes as numbers, so that they sort."""
    return {
        "Path": [array.path for array in arrays],
        "Logical axes": [logical_text(array.logical_axes) for array in arrays],
        "PartitionSpec": [spec_text(array.spec) for array in arrays],
        "Shape": [shape_text(array.shape) for array in arrays],
        "Shard shape": [
            "unknown" if array.shard_shape is None else shape_text(array.shard_shape)
            for array in arrays
        ],
        "Bytes": table.numbers([array.bytes for array in arrays]),
        "Bytes per device": table.numbers([array.bytes_per_device for array in arrays]),
        "Replicas": table.numbers([array.replicas for array in arrays]),
        "Type": [array.dtype for array in arrays],
        "Group": [GROUP_NAMES[array.group] for array in arrays],
    }


def _searched(array: Array) -> str:
    parts = (array.path, array.dtype, logical_text(array.logical_axes), spec_text(array.spec))
    return " ".join(parts).lower()
