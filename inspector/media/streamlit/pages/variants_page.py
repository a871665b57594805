"""The guide that compares two ways to write a model, leaf by leaf and by cost."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from inspector.compare import difference
from inspector.compare.difference import ArrayDifference
from inspector.guides import variants
from inspector.guides.variants import Variants
from inspector.layout import Layout
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.panels import run_panel
from inspector.media.streamlit.parts import table
from inspector.media.streamlit.session import current_layout, kept_field, planning, user
from inspector.records.snapshot import Array, Program, Snapshot
from inspector.records.statistics import statistics
from inspector.sharding.folding import fold
from inspector.sharding.sharding_text import spec_text
from inspector.text.formatting import (
    bytes_text,
    counted,
    logical_text,
    mesh_axes_text,
    mesh_sizes_text,
    seconds_text,
    shape_text,
)
from inspector.text.program_names import title


def rows(left: Snapshot, right: Snapshot) -> list[tuple[str, str, str]]:
    """Return the compared figure and both values, for each program in both Snapshots."""
    return [
        (f"{title(name)}: {what}", say(read(mine)), say(read(theirs)))
        for name in ("train_step", "apply")
        if (mine := left.program(name)) and (theirs := right.program(name))
        for what, (read, say) in _MEASURES.items()
    ]


def _median(program: Program) -> float | None:
    found = statistics(program.seconds.steps if program.seconds else ())
    return None if found is None else found.median


_MEASURES: dict[str, tuple[Callable[[Program], Any], Callable[[Any], str]]] = {
    "lower": (lambda program: program.seconds and program.seconds.lower, seconds_text),
    "compile": (lambda program: program.seconds and program.seconds.compile, seconds_text),
    "median of measured": (_median, seconds_text),
    "temporaries per device": (
        lambda program: program.memory and program.memory.temporaries,
        bytes_text,
    ),
}


TREE_PX = 620  # two fit side by side in a window of 1440 pixels

# By name: which layouts have both forms, and their two layouts.
PAIRS = {
    "Logical axes · device axes": (variants.has_device_axes, variants.logical_and_device_axes),
    "Loop · scan": (variants.has_scan, variants.loop_and_scan),
}


def show() -> None:
    """Draw the choice of a pair, the verdict, the costs after a run, and both trees."""
    service = user.service()
    layout = current_layout.last_layout()
    st.markdown("### Two ways to write a model")
    st.caption("Layout of the Layout page: " + plain(_layout_words(layout)))
    names = [name for name, (exists, _) in PAIRS.items() if exists(layout)]
    if not names:
        st.info(
            plain(
                f"{layout.entry.title} has one form only: choose an MLP for logical and device axes, or a "
                "model with the size scan for a loop and a scan."
            ),
            icon=":material/info:",
        )
        return
    name = kept_field.choose("Pair", names, "pair")
    pair = PAIRS[name][1](layout)
    left = planning.planned(service, pair.left)
    right = planning.planned(service, pair.right)
    if left is None or right is None:
        return
    verdict, controls = st.columns([3, 2], vertical_alignment="top")
    runs = [planning.run_of(service, layout) for layout in (pair.left, pair.right)]
    with controls:
        plans = (pair.left, left), (pair.right, right)
        run_panel.show(service, *plans, ran=None not in runs, label="Run both variants")
    left, right = runs[0] or left, runs[1] or right
    with verdict:
        if name == "Loop · scan":
            _show_layer_axis(right)
        else:
            live = left.source.kind == right.source.kind == "cpu"
            _show_verdict(difference.arrays(left, right), live)
    if left.programs and right.programs:
        _show_costs(pair, left, right)
    # In a narrow window the trees wrap, which columns do not.
    with st.container(horizontal=True, gap="medium"):
        for title, snapshot in ((pair.left_title, left), (pair.right_title, right)):
            with st.container(width=TREE_PX):
                st.markdown(f"**{title}**")
                _show_tree(snapshot, key=title)


def _show_tree(snapshot: Snapshot, key: str) -> None:
    leaves = fold(array for array in snapshot.arrays if array.group in variants.GROUPS)
    table.show(
        {
            "Path": [leaf.path for leaf in leaves],
            "PartitionSpec": [spec_text(leaf.first.spec) for leaf in leaves],
            "Logical axes": [logical_text(leaf.first.logical_axes) for leaf in leaves],
            "Shape": [
                (f"{leaf.count} of " if leaf.count > 1 else "") + shape_text(leaf.first.shape)
                for leaf in leaves
            ],
        },
        f"tree:{key}",
    )


def _layout_words(layout: Layout) -> str:
    mesh = mesh_sizes_text(layout.axis_names, layout.mesh_shape)
    sizes = [
        counted(int(layout.sizes["layers"]), "layer") if "layers" in layout.sizes else "",
        f"depth {layout.sizes['depth']}" if "depth" in layout.sizes else "",
    ]
    return f"{', '.join(filter(None, (layout.entry.title, f'mesh {mesh}', *sizes)))}."


def _show_verdict(every: Sequence[ArrayDifference], live: bool) -> None:
    how = "in live arrays" if live else "as planned"
    pairs = [pair for pair in every if pair.either.group in variants.GROUPS]
    different = [pair for pair in pairs if not pair.same_placement]
    if not different:
        st.success(
            f"All {counted(len(pairs), 'leaf', 'leaves')} have the same sharding, {how}.",
            icon=":material/check:",
        )
        return
    st.warning(
        f"{len(different)} of {counted(len(pairs), 'leaf', 'leaves')} have different shardings, {how}.",
        icon=":material/difference:",
    )
    table.show(
        {
            "Path": [pair.path for pair in different],
            "Logical axes": [_spec(pair.before) for pair in different],
            "Device axes": [_spec(pair.after) for pair in different],
        },
        "different_leaves",
        height=220,
    )


def _spec(array: Array | None) -> str:
    return "absent" if array is None else spec_text(array.spec)


def _show_layer_axis(scan: Snapshot) -> None:
    stacked = [array for array in scan.arrays if array.group == "params"]
    if not stacked:
        return
    array = stacked[0]
    axes = array.spec[0] if array.spec else None
    name = array.logical_axes[0] if array.logical_axes else "layer"
    split = f"sharded over {mesh_axes_text(axes)}" if axes else "which is not sharded"
    st.info(
        f"`nn.scan` stacks {counted((array.shape or (0,))[0], 'layer')} in each parameter along a first "
        f"dimension, {plain(name or 'layer')}, {plain(split)}.",
        icon=":material/layers:",
    )


def _show_costs(pair: Variants, left: Snapshot, right: Snapshot) -> None:
    titles = ("", pair.left_title, pair.right_title)
    columns = zip(*rows(left, right), strict=True)
    table.show(dict(zip(titles, columns, strict=True)), "variant_costs")
    st.caption("Emulated on this machine, one after the other.")
