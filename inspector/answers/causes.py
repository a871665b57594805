"""Why a sharding or a collective is there: origins, conflicts, and what depends on a rule."""

from collections.abc import Callable, Sequence
from typing import Any

from inspector.answers.arrays import by_bytes
from inspector.answers.section import (
    Block,
    Code,
    Column,
    Inline,
    Section,
    Strong,
    Table,
    more,
    text,
)
from inspector.compiled.causes import Conflicts, Dependents, conflicts_of, wire_bytes_of_conflicts
from inspector.records.snapshot import Array, ConflictSide, Origin, Program
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.traffic import wire_bytes_of_run
from inspector.text.formatting import bytes_text, counted, mesh_axes_text, shape_text
from inspector.text.program_names import title, who_runs

_MOST_ROWS = 200


def of_origins(name: str, origins: Sequence[Origin]) -> tuple[Block, ...]:
    """Return the origins of a sharding: a row per mesh axis and source.

    Args:
      name: the collective or the array.
    """
    columns: dict[str | Column, Callable[[Origin], Any]] = {
        "Mesh axis:code": lambda origin: origin.mesh_axis,
        "Sharding comes from:code": lambda origin: origin.from_,
    }
    if any(origin.rule for origin in origins):
        columns["By rule:code"] = lambda origin: origin.rule
    return (Table.of(f"origins:{name}", origins, columns),)


def of_array(array: Array) -> Section | None:
    """Return the origins of the sharding of a value inside a program; None if they are not recorded."""
    if array.origins is None:
        return None
    if not array.origins:
        blocks: tuple[Block, ...] = (text("No mesh axis shards it, so it is replicated."),)
    else:
        blocks = of_origins(array.path, array.origins)
    return Section(f"cause-{array.path}", "Where its sharding comes from", blocks)


_CONFLICTS = "Values that change their sharding"
COMPUTING = Section("conflicts", _CONFLICTS, (text("Computing.", quiet=True),))


def conflicts(program: Program) -> Section | None:
    """Return the operations whose operands or results change their sharding; None if there are none."""
    groups = conflicts_of(program)
    if not groups:
        return None
    shared: dict[str | Column, Callable[[Conflicts], int | None]] = {}
    if any(group.shared_bytes != 0 for group in groups):
        column = Column("Shared", "bytes", "Bytes that several of these places share.")
        shared = {column: lambda group: group.shared_bytes}
    blocks: tuple[Block, ...] = (
        text(*_headline(program, groups)),
        Table.of(
            f"conflicts:{program.name}",
            groups,
            {
                "Operation:code": lambda group: group.conflict.operation,
                Column(
                    "On the wire", "bytes", "Bytes that leave one device in one run for this alone."
                ): lambda group: group.wire_bytes,
                **shared,
                "Source": lambda group: group.conflict.source or "unknown",
                Column("Places", "count", "Operations with the same conflict."): lambda group: group.count,
                "Resharded": lambda group: "; ".join(
                    _change(side) for side in group.conflict.sides if side.spec != side.used
                ),
                "By": lambda group: ", ".join(
                    dict.fromkeys(collective.op for collective in group.collectives)
                ),
            },
        ),
    )
    return Section("conflicts", _CONFLICTS, blocks)


def sides(conflicts: Conflicts) -> Table:
    """Return what each operand and result of a conflict asks for, and in which sharding it is used."""
    return Table.of(
        "conflict-sides",
        conflicts.conflict.sides,
        {
            "Value": lambda side: side.value,
            "Shape": lambda side: f"{side.dtype} {shape_text(side.shape)}",
            "Sharding:code": lambda side: spec_text(side.spec),
            "Used as:code": lambda side: spec_text(side.used),
            "From": lambda side: (
                ", ".join(f"{origin.mesh_axis}: {origin.from_}" for origin in side.origins or ())
                or ("unknown" if side.origins is None else "no mesh axis")
            ),
            "By rule": lambda side: ", ".join(
                dict.fromkeys(origin.rule for origin in side.origins or () if origin.rule)
            ),
        },
    )


def of_rule(dependents: Dependents) -> Section:
    """Return the arrays, values inside programs and collectives whose sharding comes from a rule."""
    sent = wire_bytes_of_run(*(collective for _, collective in dependents.collectives))
    depending = (
        f"{counted(len(dependents.collectives), 'collective')} of all programs depend on it"
        f"{'' if not dependents.collectives else f', {bytes_text(sent)} per device together'}."
    )
    if dependents.unknown:
        what = "other collective" if dependents.collectives else "collective"
        unknown = f"The sources of {counted(dependents.unknown, what)} are unknown; a plan records them."
        depending = f"{depending} {unknown}" if dependents.collectives else unknown
    said = text(
        "The rule ",
        Code(dependents.rule),
        f" places {counted(len(dependents.arrays), 'array')} and "
        f"{counted(len(dependents.intermediates), 'value')} inside programs. ",
        depending,
    )
    arrays = by_bytes([*dependents.arrays, *dependents.intermediates])
    blocks: list[Block] = [said]
    if dependents.collectives:
        blocks.append(
            Table.of(
                f"rule-collectives:{dependents.rule}",
                dependents.collectives[:_MOST_ROWS],
                {
                    "Program": lambda pair: title(pair[0].name),
                    "Op": lambda pair: pair[1].op,
                    "On the wire:bytes": lambda pair: wire_bytes_of_run(pair[1]),
                    "Mesh axes": lambda pair: mesh_axes_text(pair[1].mesh_axes),
                    "Source": lambda pair: pair[1].source or "unknown",
                    "Name:code": lambda pair: pair[1].name,
                },
            )
        )
    if arrays:
        blocks.append(
            Table.of(
                f"rule-arrays:{dependents.rule}",
                arrays[:_MOST_ROWS],
                {
                    "Array:code": lambda array: array.path,
                    "Bytes per device:bytes": lambda array: array.bytes_per_device,
                    "Shape": lambda array: f"{array.dtype} {shape_text(array.shape)}",
                    "PartitionSpec:code": lambda array: spec_text(array.spec),
                },
            )
        )
    hidden = max(len(arrays) - _MOST_ROWS, 0) + max(len(dependents.collectives) - _MOST_ROWS, 0)
    blocks += more(hidden, "row")
    return Section(f"rule-{dependents.rule}", f"What depends on {dependents.rule}", tuple(blocks))


def _headline(program: Program, groups: Sequence[Conflicts]) -> tuple[Inline, ...]:
    places = sum(conflicts.count for conflicts in groups)
    sent = wire_bytes_of_conflicts(program)
    unknown = any(not conflicts.collectives for conflicts in groups)
    who = who_runs(program.name)
    resharded = f"{who} reshards operands or results of {counted(places, 'operation')}"
    if sent is None:
        return (f"{resharded}. How many bytes leave each device for this is unknown.",)
    branch = any(one.conditional for conflicts in groups for one in conflicts.collectives)
    amount = f"{'at least ' if unknown else 'up to ' if branch else ''}{bytes_text(sent)}"
    return (
        f"{resharded}: ",
        Strong(amount),
        " leave each device for this in one run.",
    )


def _change(side: ConflictSide) -> str:
    before, after = (side.spec, side.used) if side.value.startswith("operand") else (side.used, side.spec)
    return f"{side.value} {spec_text(before)} to {spec_text(after)}"
