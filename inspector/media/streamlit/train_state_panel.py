"""The train state from end to end: shardings asked for and got, boxes, loss, and what stays alive."""

from __future__ import annotations

import streamlit as st

from inspector.core.formatting import bytes_text, counted, spec_text
from inspector.core.snapshot import Array, ProgramArray, Snapshot
from inspector.figures.live_map import NOBODY, live_map
from inspector.figures.loss_curve import loss_curve
from inspector.layout import Layout
from inspector.media.streamlit import (
    chart,
    not_known,
    page_width,
    program_choice,
    table,
)


def show(found: Snapshot, _: Layout | None) -> None:
    """Asked and got first; under it the boxes, the loss and what is alive."""
    if not any(program.shardings for program in found.programs):
        if found.programs:
            not_known.show(
                "The programs' own shardings are not in "
                f"{not_known.origin(found) or 'this Snapshot'}: what was asked for, and whether the "
                "compiler gave it, is unknown."
            )
        else:
            not_known.no_programs(
                found,
                "A plan has only what is asked for. Build and run the layout to see what the compiler "
                "made of it, where gradients and activations are, and what stays alive on each device.",
                "what was asked for, and whether a compiler gave it, is unknown",
            )
        _show_boxes(found)
        return
    _show_asked_and_got(found)
    left, right = page_width.halves()
    with left:
        _show_loss(found)
    with right:
        _show_alive(found)
    _show_boxes(found)


def _show_asked_and_got(found: Snapshot) -> None:
    rows = [(program.name, one) for program in found.programs for one in program.shardings]
    compared = [one for _, one in rows if one.same is not None]
    different = [one for one in compared if not one.same]
    if different:
        st.error(
            f"{len(different)} of {counted(len(compared), 'sharding')} asked for came out differently; "
            "they are marked ≠ below.",
            icon=":material/difference:",
        )
    else:
        st.success(
            f"All {counted(len(compared), 'sharding')} asked for are what the compiled programs have.",
            icon=":material/check:",
        )
    program = program_choice.choose(
        list(dict.fromkeys(program for program, _ in rows)), "asked_program"
    )
    table.show(_columns([one for name, one in rows if name == program]), "asked_table", height=280)


def _columns(rows: list[ProgramArray]) -> dict[str, list[str]]:
    return {
        "Path": [one.path for one in rows],
        "Role": [one.role for one in rows],
        "Asked for": [
            "compiler's choice" if one.asked is None else spec_text(one.asked) for one in rows
        ],
        "Got": [spec_text(one.got) if one.used else "not used by this program" for one in rows],
        "Same": [_mark(one) for one in rows],
    }


def _mark(one: ProgramArray) -> str:
    if one.same is None:
        return "–"
    return "=" if one.same else "≠"


def _show_loss(found: Snapshot) -> None:
    step = found.program("train_step")
    figure = loss_curve(step.losses, width_px=page_width.half_px()) if step is not None else None
    if figure is not None:
        chart.draw(figure, "loss_curve", alt="Loss by train step")


def _show_alive(found: Snapshot) -> None:
    if found.mesh is None:
        return
    figure = live_map(found.live or (), found.mesh, width_px=page_width.half_px())
    if figure is None:
        return
    chart.draw(figure, "live_map", alt="Bytes alive on each device")
    unasked = sum(one.bytes for one in found.live or () if one.owner == NOBODY)
    if unasked:
        st.caption(
            f"{bytes_text(unasked)} on all devices together belong to nobody: "
            "`jax.live_arrays()` has them, but no part of the run holds them."
        )
    else:
        st.caption("`jax.live_arrays()` has nothing that nobody asked for.")


def _show_boxes(found: Snapshot) -> None:
    boxed = [array for array in found.arrays if array.box is not None]
    if not boxed:
        return
    with st.expander(f"Boxed values: {counted(len(boxed), 'leaf', 'leaves')} with names"):
        st.caption(
            "Flax keeps the names of a parameter's dimensions in a box around its value. `unbox` gives "
            "the value with its sharding constraint, `replace_boxed` puts another value into the same "
            "box; `get_partition_spec` reads the names, and optimizers see through the box, which is "
            "why moments are sharded like their parameters."
        )
        table.show(
            {
                "Path": [array.path for array in boxed],
                "Box": [array.box.kind for array in boxed],
                "names": [_names_text(array) for array in boxed],
                ".value": [_value_text(array) for array in boxed],
                "PartitionSpec": [spec_text(array.spec) for array in boxed],
            },
            "box_table",
        )


def _names_text(array: Array) -> str:
    entries = ("None" if not names else "+".join(names) for names in array.box.names)
    return f"({', '.join(entries)})"


def _value_text(array: Array) -> str:
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"
