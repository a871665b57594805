"""The train state: its arrays, requested and compiled shardings, loss, live arrays, and boxed values."""

from collections.abc import Callable, Iterable, Sequence

from inspector.answers import unknown
from inspector.answers.arrays import by_bytes
from inspector.answers.section import Block, Cell, Column, Folded, Mark, Notice, Section, Table, notice, text
from inspector.records.snapshot import Array, LiveBytes, ProgramArray, Snapshot
from inspector.sharding.array_groups import ARRAY_GROUPS
from inspector.sharding.sharding_text import array_spec_text, spec_text
from inspector.sharding.totals import STATE_GROUPS
from inspector.text.formatting import bytes_text, counted, shape_text

# The owner of bytes that no part of the run asked for.
NOBODY = "nobody"

# The columns of an array.
_OF_ARRAY: dict[str | Column, Callable[[Array], Cell]] = {
    "Path:code": lambda array: array.path,
    "Bytes per device:bytes": lambda array: array.bytes_per_device,
    "Shape": lambda array: f"{array.dtype} {shape_text(array.shape)}",
    "PartitionSpec:code": array_spec_text,
}


def verdict(snapshot: Snapshot) -> Notice:
    """Return whether the compiled shardings are the requested ones, or why that is unknown."""
    missing = unknown.no_programs(snapshot, "compiled shardings are")
    if missing is not None:
        return missing
    rows = [sharding for program in snapshot.programs for sharding in program.shardings]
    if not rows:
        source = unknown.source_text(snapshot)
        return unknown.unknown(f"Compiled shardings are unknown: {source} does not contain them.")
    compared = [row for row in rows if row.same is not None]
    different = [sharding for sharding in compared if not sharding.same]
    if different:
        total = counted(len(compared), "sharding")
        return notice("error", f"{len(different)} of {total} were compiled differently, marked ≠.")
    return notice("success", f"All {counted(len(compared), 'sharding')} were compiled as requested.")


def arrays(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the arrays of the train state; empty if compiled programs list them, or if none is known."""
    state = [array for array in snapshot.arrays if array.group in STATE_GROUPS]
    if not state or any(program.shardings for program in snapshot.programs):
        return ()
    table = Table.of("state_arrays", by_bytes(state), _OF_ARRAY)
    return (Section("state-arrays", "Parameters and optimizer state", (table,)),)


def inside(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the activations and gradients of partitioned programs with their origins; empty without any."""
    values = [array for array in snapshot.arrays if array.origins is not None]
    if not values:
        return ()
    table = Table.of("propagated_values", by_bytes(values), _OF_ARRAY | {"Because of": _cause})
    note = text("Propagated by Shardy without a compile.", quiet=True)
    return (Section("propagated-values", "Activations and gradients", (note, table)),)


def _cause(array: Array) -> str:
    causes = (origin.rule or origin.from_ for origin in array.origins or ())
    return ", ".join(dict.fromkeys(causes)) or "no mesh axis"


def shardings(snapshot: Snapshot, program: str) -> Table:
    """Return the requested and the compiled sharding of each input and output of a program."""
    found = snapshot.program(program)
    return Table.of(
        f"shardings:{program}",
        () if found is None else found.shardings,
        {
            "Path:code": lambda argument: argument.path,
            "Role": lambda argument: argument.role,
            "Requested": lambda argument: (
                "chosen by the compiler" if argument.requested is None else spec_text(argument.requested)
            ),
            "Compiled": lambda argument: (
                spec_text(argument.compiled) if argument.used else "not used by this program"
            ),
            "Same": _mark,
        },
    )


def training(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the loss of each train step, and the bytes that are alive on each device after the run."""
    step = snapshot.program("train_step")
    losses = () if step is None else step.losses
    blocks: list[Block] = []
    if losses:
        columns: dict[str | Column, Callable[[tuple[int, float | None]], Cell]] = {
            "Train step:count": lambda pair: pair[0],
            "Loss": lambda pair: "not finite" if pair[1] is None else f"{pair[1]:.6g}",
        }
        table = Table.of("losses", enumerate(losses), columns)
        blocks.append(Folded(f"Loss by train step: {loss_text(losses)}", (table,)))
    live = snapshot.live or ()
    if live:
        owners: dict[str, list[LiveBytes]] = {}
        for part in sorted(live, key=lambda part: part.owner == NOBODY):
            owners.setdefault(part.owner, []).append(part)
        blocks.append(
            Table.of(
                "live_bytes",
                owners.items(),
                {
                    "Alive after the run": lambda owner: _owner_text(owner[0]),
                    "Most on one device:bytes": lambda owner: max(part.bytes for part in owner[1]),
                    "On all devices:bytes": lambda owner: sum(part.bytes for part in owner[1]),
                },
            )
        )
        unowned = sum(part.bytes for part in owners.get(NOBODY, ()))
        note = "jax.live_arrays() contains only arrays of this run."
        if unowned:
            amount = bytes_text(unowned)
            note = f"jax.live_arrays() contains {amount} on all devices that no part of this run holds."
        blocks.append(text(note, quiet=True))
    return tuple(blocks)


def loss_text(losses: Sequence[float | None]) -> str:
    """Return the first and the last loss, and the number of losses that are not finite."""
    finite = [loss for loss in losses if loss is not None]
    if not finite:
        return "no loss is finite"
    said = f"from {finite[0]:.4g} to {finite[-1]:.4g} in {counted(len(losses) - 1, 'further step')}"
    lost = len(losses) - len(finite)
    return said + (f"; {lost} not finite, left out" if lost else "")


def _owner_text(owner: str) -> str:
    if owner == NOBODY:
        return "no known owner"
    return ARRAY_GROUPS.get(owner, owner)


def boxes(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the Flax boxes around values, with names, value and PartitionSpec; empty if there are none."""
    boxed = [(array, array.box) for array in snapshot.arrays if array.box is not None]
    if not boxed:
        return ()
    note = (
        "Flax keeps the names of a parameter's dimensions in a box around its value. `unbox` returns the "
        "value with its sharding constraint. `replace_boxed` puts another value into the same box. "
        "Optimizers see through the box, so moments are sharded like parameters."
    )
    table = Table.of(
        "box_table",
        boxed,
        {
            "Path:code": lambda pair: pair[0].path,
            "Box": lambda pair: pair[1].kind,
            "names": lambda pair: _names_text(pair[1].names),
            ".value": lambda pair: f"{pair[0].dtype}[{', '.join(map(str, pair[0].shape or ()))}]",
            "PartitionSpec": lambda pair: spec_text(pair[0].spec),
        },
    )
    summary = f"Boxed values: {counted(len(boxed), 'leaf', 'leaves')} with names"
    return (Folded(summary, (text(note, quiet=True), table)),)


def _mark(sharding: ProgramArray) -> str | Mark:
    if sharding.same is None:
        return "–"
    return Mark("=", "success") if sharding.same else Mark("≠", "error")


def _names_text(names: Iterable[Sequence[str] | None]) -> str:
    return f"({', '.join('+'.join(dimension) if dimension else 'None' for dimension in names)})"
