"""The train state of a run: requested and compiled shardings, loss, live arrays, and boxed values."""

from __future__ import annotations

from inspector.core.formatting import bytes_text, counted, spec_text
from inspector.core.snapshot import Array, ProgramArray, Snapshot
from inspector.figures.live_map import NOBODY, live_map
from inspector.figures.loss_curve import loss_curve
from inspector.sections import unknown
from inspector.sections.section import (
    Block,
    Columns,
    Folded,
    Mark,
    Notice,
    Picture,
    Table,
    columns,
    text,
)


def verdict(snapshot: Snapshot) -> Notice:
    """Return whether the compiled shardings are the requested ones, or why that is unknown."""
    missing = unknown.no_programs(snapshot, "compiled shardings are")
    if missing is not None:
        return missing
    rows = [one for program in snapshot.programs for one in program.shardings]
    if not rows:
        source = unknown.source_text(snapshot)
        return unknown.unknown(f"Compiled shardings are unknown: {source} does not contain them.")
    compared = [one for one in rows if one.same is not None]
    different = [one for one in compared if not one.same]
    if different:
        total = counted(len(compared), "sharding")
        return Notice(
            "error", (f"{len(different)} of {total} were compiled differently, marked ≠.",)
        )
    return Notice(
        "success", (f"All {counted(len(compared), 'sharding')} were compiled as requested.",)
    )


def shardings(snapshot: Snapshot, program: str) -> Table:
    """Return the requested and the compiled sharding of each input and output of a program."""
    headings = columns("Path:code", "Role", "Requested", "Compiled", "Same")
    rows = tuple(
        (
            one.path,
            one.role,
            "chosen by the compiler" if one.requested is None else spec_text(one.requested),
            spec_text(one.compiled) if one.used else "not used by this program",
            _mark(one),
        )
        for each in snapshot.programs
        if each.name == program
        for one in each.shardings
    )
    return Table(f"shardings:{program}", headings, rows)


def training(snapshot: Snapshot) -> Columns:
    """Return the loss by train step, and the bytes that are alive on each device after the run."""
    step = snapshot.program("train_step")
    losses = () if step is None else step.losses
    loss = Picture(
        "loss_curve", "Loss by train step", lambda width_px: loss_curve(losses, width_px=width_px)
    )
    mesh, live = snapshot.mesh, snapshot.live or ()
    if mesh is None or not live:
        return Columns(((loss,),))
    unowned = sum(one.bytes for one in live if one.owner == NOBODY)
    note = "`jax.live_arrays()` contains only arrays of this run."
    if unowned:
        note = (
            f"`jax.live_arrays()` contains {bytes_text(unowned)} on all devices that no part of this run "
            "holds."
        )
    alive = Picture(
        "live_map",
        "Bytes alive on each device",
        lambda width_px: live_map(live, mesh, width_px=width_px),
    )
    return Columns(((loss,), (alive, text(note, quiet=True))))


def boxes(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the Flax boxes around values, with names, value and PartitionSpec; empty if there are none."""
    boxed = [array for array in snapshot.arrays if array.box is not None]
    if not boxed:
        return ()
    headings = columns("Path:code", "Box", "names", ".value", "PartitionSpec")
    rows = tuple(
        (array.path, array.box.kind, _names_text(array), _value_text(array), spec_text(array.spec))
        for array in boxed
        if array.box is not None
    )
    return (
        Folded(
            f"Boxed values: {counted(len(boxed), 'leaf', 'leaves')} with names",
            (
                text(
                    "Flax keeps the names of a parameter's dimensions in a box around its value. `unbox` "
                    "returns the value with its sharding constraint. `replace_boxed` puts another value into "
                    "the same box. Optimizers see through the box, so moments are sharded like parameters.",
                    quiet=True,
                ),
                Table("box_table", headings, rows),
            ),
        ),
    )


def _mark(one: ProgramArray) -> str | Mark:
    if one.same is None:
        return "–"
    return Mark("=", "success") if one.same else Mark("≠", "error")


def _names_text(array: Array) -> str:
    assert array.box is not None
    entries = ("None" if not names else "+".join(names) for names in array.box.names)
    return f"({', '.join(entries)})"


def _value_text(array: Array) -> str:
    return f"{array.dtype}[{', '.join(map(str, array.shape or ()))}]"
