"""What the collectives and the memory of a program gained and lost, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inspector.compare.difference.answers import change_text
from inspector.core.collectives import Traffic, traffic
from inspector.core.formatting import and_text, bytes_text, counted
from inspector.core.snapshot import Program, Snapshot
from inspector.machines.prediction import memory
from inspector.machines.prediction.memory import Breakdown

_MOST_PARTS = 4
LEAST_SHARE = 0.01  # of the largest change of a sum; what is below it is rounding beside it


@dataclass(frozen=True)
class TrafficChange:
    """Collectives of one op along the same mesh axes: wire bytes per device and executions of one run.

    The axes have the names of the second mesh, and are None where they are unknown.
    """

    mesh_axes: tuple[str, ...] | None
    op: str
    wire_before: int | None
    wire_after: int | None
    executions_before: int | None
    executions_after: int | None

    @property
    def gained(self) -> int | None:
        if self.wire_before is None or self.wire_after is None:
            return None
        return self.wire_after - self.wire_before

    @property
    def differs(self) -> bool:
        return (self.wire_before, self.executions_before) != (
            self.wire_after,
            self.executions_after,
        )

    @property
    def words(self) -> str:
        where = (
            "over unknown axes" if self.mesh_axes is None else f"over {' × '.join(self.mesh_axes)}"
        )
        name = f"{self.op} {where}"
        if self.gained is None:
            return f"{bytes_text(self.wire_before)} → {bytes_text(self.wire_after)} by {name}"
        if not self.gained:
            times = f"{self.executions_after} executions, not {self.executions_before}"
            return f"as much by {name} in {times}"
        if not self.executions_before:
            return f"{bytes_text(self.wire_after)} by a new {name}"
        if not self.executions_after:
            return f"{bytes_text(self.wire_before)} by {name} gone"
        return f"{bytes_text(abs(self.gained))} {'more' if self.gained > 0 else 'less'} by {name}"


def traffic_changes(
    before: Program, after: Program, renamed: Mapping[str, str]
) -> tuple[TrafficChange, ...]:
    """What differs between the collectives of two programs, the most bytes first."""
    if before.collectives is None or after.collectives is None:
        return ()
    was = {(_told(row.mesh_axes, renamed), row.op): row for row in traffic(before.collectives)}
    becomes = {(row.mesh_axes, row.op): row for row in traffic(after.collectives)}
    found = []
    for axes, op in dict.fromkeys((*was, *becomes)):
        sides = was.get((axes, op)), becomes.get((axes, op))
        found.append(
            TrafficChange(
                axes,
                op,
                *(_of(row, "wire_bytes_per_device") for row in sides),
                *(_of(row, "executions") for row in sides),
            )
        )
    return tuple(
        sorted((one for one in found if one.differs), key=lambda one: -abs(one.gained or 0))
    )


def traffic_sentence(
    before: Program, after: Program, renamed: Mapping[str, str]
) -> tuple[int, str] | None:
    """The bytes by which all collectives of a program changed, with a sentence; None if nothing did."""
    changes = traffic_changes(before, after, renamed)
    if not changes:
        return None
    was, becomes = _wire(before), _wire(after)
    head = _head(f"{after.name} sends", "per device and run", was, becomes)
    more = len(changes) - _MOST_PARTS
    said = [one.words for one in changes[:_MOST_PARTS]]
    said += [counted(more, "smaller change")] if more > 0 else []
    return abs((becomes or 0) - (was or 0)), f"{head}: {and_text(said)}."


def memory_sentence(before: Snapshot, after: Snapshot, name: str) -> tuple[int, str] | None:
    """The bytes by which a program's memory on one device changed, with a sentence; None if by none."""
    programs = before.program(name), after.program(name)
    if programs[0] is None or programs[1] is None:
        return None
    was, becomes = memory.breakdown(before, programs[0]), memory.breakdown(after, programs[1])
    if was is None or becomes is None or was.total is None or becomes.total is None:
        return None
    if was.total == becomes.total:
        return None
    old, new = _parts(was), _parts(becomes)
    changes = {what: new[what] - old[what] for what in new}
    ordered = sorted(changes.items(), key=lambda item: -abs(item[1]))
    least = LEAST_SHARE * abs(ordered[0][1])
    said = [
        f"{bytes_text(abs(change))} {'more' if change > 0 else 'less'} of {what}"
        for what, change in ordered
        if change and abs(change) >= least
    ]
    head = _head(f"{name} needs", "of memory per device", was.total, becomes.total)
    return abs(becomes.total - was.total), f"{head}: {and_text(said[:_MOST_PARTS])}."


def _parts(one: Breakdown) -> dict[str, int]:
    """What a program's memory is the sum of, each part in words."""
    outputs = memory.summed(part.bytes for part in one.outputs) or 0
    return {
        "arguments": memory.summed(part.bytes for part in one.arguments) or 0,
        "outputs besides its arguments": outputs - (one.aliased or 0),
        "temporaries": one.temporaries or 0,
        "code": (one.code or 0) if one.code_on_device else 0,
    }


def _head(does: str, what: str, before: int | None, after: int | None) -> str:
    """`train_step sends 24.1 MiB per device and run in place of 8.2 MiB (+195%)`."""
    texts = bytes_text(before), bytes_text(after)
    if before is None or after is None or before == after:
        return f"{does} {texts[1]} {what}" + (" as before" if before == after else "")
    change = change_text(before, after)
    if texts[0] == texts[1]:
        way = "more" if after > before else "less"
        return f"{does} {bytes_text(abs(after - before))} {way} {what} ({texts[1]}, {change})"
    return f"{does} {texts[1]} {what} in place of {texts[0]} ({change})"


def _told(axes: tuple[str, ...] | None, renamed: Mapping[str, str]) -> tuple[str, ...] | None:
    return None if axes is None else tuple(renamed.get(name, name) for name in axes)


def _of(row: Traffic | None, what: str) -> int | None:
    return 0 if row is None else getattr(row, what)


def _wire(program: Program) -> int | None:
    return memory.summed(row.wire_bytes_per_device for row in traffic(program.collectives or ()))
