"""Partitioned against compiled collectives: the sums that differ, and a table with reasons."""

from collections.abc import Sequence
from typing import Any

from inspector.answers.section import (
    Block,
    Code,
    Column,
    Folded,
    Inline,
    Listing,
    Section,
    Strong,
    Table,
    text,
)
from inspector.compare.partitioned_traffic import (
    MEANINGS,
    Axes,
    TrafficPair,
    TrafficRow,
    not_compared,
    pairs,
    rows_of,
)
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import and_text, bytes_text, mesh_axes_text
from inspector.text.program_names import title

HEADING = "Partitioned and compiled collectives"
NOTHING = "has no partitioned and compiled programs of the same layout: `inspect` of a layout records both"
_UNKNOWN_AXES = "unknown"
_AMOUNTS = ("instructions", "executions", "wire_bytes_per_device")


def sections(snapshot: Snapshot) -> tuple[Section, ...]:
    """Return the comparison; nothing if the Snapshot has no partitioned or no compiled programs."""
    rows = rows_of(snapshot)
    if rows is None:
        return ()
    others = not_compared(snapshot)
    found = pairs(rows)
    blocks: list[Block] = [*headline(found, not others)] if found or not others else []
    if others:
        names = and_text([title(name) for name in others])
        why = "partitioned or compiled collectives are unknown"
        blocks.append(text(f"Not compared, because {why}: {names}.", quiet=True))
    if rows:
        reasons = dict.fromkeys(reason for row in rows for reason in row.reasons)
        meanings = Listing(tuple((Code(reason), f": {MEANINGS[reason]}") for reason in reasons))
        blocks.append(Folded("By program, mesh axes and operation", (_table(rows), meanings)))
    return (Section("propagated-traffic", HEADING, tuple(blocks)),)


def headline(pairs: Sequence[TrafficPair], complete: bool) -> tuple[Block, ...]:
    """Return the number of equal sums over mesh axes, and the others with both amounts and their reasons.

    complete: whether all programs are compared.
    """
    if not pairs:
        return (text("Neither the partitioned nor the compiled programs send anything."),)
    known = [pair for pair in pairs if pair.known]
    others = [pair for pair in known if not pair.agrees]
    blocks: list[Block] = []
    if others:
        equal = Strong(f"{len(known) - len(others)} of {len(known)}")
        said = " are what was expected before the compile, within 1%. The others:"
        blocks.append(text("Of the sums over the mesh axes of each program, ", equal, said))
        blocks.append(Listing(tuple(map(_difference, others))))
    elif complete and len(known) == len(pairs):
        said = "Each compiled program sends over each of its mesh axes what was expected, within 1%."
        blocks.append(text(said))
    elif known:
        blocks.append(text("The sums that are known are what was expected, within 1%."))
    if unknown := [pair for pair in pairs if not pair.known]:
        names = and_text([f"{title(pair.program)} over {_axes_text(pair.mesh_axes)}" for pair in unknown])
        said = f"Not compared, because the number of executions is unknown: {names}."
        blocks.append(text(said, quiet=True))
    return tuple(blocks)


def _difference(pair: TrafficPair) -> tuple[Inline, ...]:
    why = "; ".join(MEANINGS[reason] for reason in pair.reasons)
    return (
        f"{title(pair.program)} over ",
        Code(_axes_text(pair.mesh_axes)),
        f": {bytes_text(pair.partitioned)} expected, {bytes_text(pair.compiled)} compiled"
        f"{f' ({why})' if why else ''}.",
    )


def _axes_text(axes: Axes) -> str:
    return _UNKNOWN_AXES if axes is None else mesh_axes_text(axes)


def to_json(snapshot: Snapshot) -> list[dict[str, Any]] | None:
    """Return each row with both amounts and the codes of its reasons; None if it has no such programs."""
    rows = rows_of(snapshot)
    if rows is None:
        return None
    return [
        {
            **{name: getattr(row, name) for name in ("program", "mesh_axes", "op")},
            **{
                key: {name: getattr(side, name) for name in _AMOUNTS}
                for key, side in (("propagated", row.partitioned), ("compiled", row.compiled))
            },
            "reasons": row.reasons,
        }
        for row in rows
    ]


def _table(rows: Sequence[TrafficRow]) -> Table:
    def difference(row: TrafficRow) -> int:
        wire_bytes, other = row.partitioned.wire_bytes_per_device, row.compiled.wire_bytes_per_device
        return -1 if wire_bytes is None or other is None else abs(wire_bytes - other)

    return Table.of(
        "partitioned_traffic",
        sorted(rows, key=difference, reverse=True),
        {
            "Program": lambda row: title(row.program),
            "Mesh axes": lambda row: _axes_text(row.mesh_axes),
            "Op": lambda row: row.op,
            Column("Partitioned", "bytes", "Bytes that one device sends in one run."): lambda row: (
                row.partitioned.wire_bytes_per_device
            ),
            Column("Compiled", "bytes", "Bytes that one device sends in one run."): lambda row: (
                row.compiled.wire_bytes_per_device
            ),
            Column("Executions partitioned", "count"): lambda row: row.partitioned.executions,
            Column("Executions compiled", "count"): lambda row: row.compiled.executions,
            "Reason": lambda row: ", ".join(row.reasons) or ("unknown" if difference(row) < 0 else "equal"),
        },
    )
