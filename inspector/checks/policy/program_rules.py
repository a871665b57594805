"""Rules about compiled programs: their memory, and the bytes that their collectives move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.checks.policy.fields import Fields, check_known
from inspector.checks.policy.outcome import Outcome, Violation, name
from inspector.core.collectives import OPS, Traffic, traffic
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, exact_bytes_text, mesh_axes_text
from inspector.core.snapshot import Collective, Program, Snapshot
from inspector.machines.prediction import memory

# `peak`: the most that is alive at one time, as the compiler says. `total`: arguments, outputs and
# temporaries without aliased bytes, plus code if it is in device memory.
FIGURES = ("peak", "total")


@dataclass(frozen=True)
class ProgramMemory:
    """A program takes at most `most` bytes on one device. Without `program`, every program does."""

    most: int
    program: str | None
    figure: str
    title: str = "memory"

    def outcome(self, snapshot: Snapshot) -> Outcome:
        violations, unknown = [], []
        for program in _programs(snapshot, self.program):
            one = memory.breakdown(snapshot, program)
            taken = None if one is None else one.peak if self.figure == "peak" else one.total
            if taken is None:
                unknown.append(name(program.name))
            elif taken > self.most:
                violations.append(
                    Violation(
                        f"{name(program.name)}: {self.figure} memory {exact_bytes_text(taken)} per "
                        f"device (limit {exact_bytes_text(self.most)})"
                    )
                )
        missing = f"unknown {self.figure} memory of {', '.join(unknown)}" if unknown else None
        return Outcome(self.title, tuple(violations), missing)


@dataclass(frozen=True)
class Collectives:
    """A program has no such collectives, or they move at most this many bytes in one run.

    A collective runs over an axis if the axis is one of its `mesh_axes`. Collectives in branches count;
    those with 0 executions do not. The limits are for the sums over executions on one device.
    """

    op: str | None
    axis: str | None
    program: str
    most_wire_bytes: int | None
    most_payload_bytes: int | None
    title: str = "collectives"

    def outcome(self, snapshot: Snapshot) -> Outcome:
        (program,) = _programs(snapshot, self.program)
        if self.axis is not None and snapshot.mesh is not None:
            check_known(self.axis, snapshot.mesh.axis_names, "axis")
        if program.collectives is None:
            return Outcome(self.title, (), f"unknown collectives of {name(program.name)}")
        selected = [
            one
            for one in program.collectives
            if (self.op is None or one.op == self.op) and one.executions != 0
        ]
        unplaced = [one for one in selected if one.mesh_axes is None and self.axis is not None]
        selected = [
            one for one in selected if self.axis is None or self.axis in (one.mesh_axes or ())
        ]
        if self.most_wire_bytes is None and self.most_payload_bytes is None:
            violations = self._forbidden(selected)
        else:
            violations, unknown = self._limited(selected)
            if unknown is not None and not violations:
                return Outcome(self.title, (), unknown)
        missing = None
        if unplaced:
            missing = (
                f"unknown mesh axes of {name(unplaced[0].name)} ({name(unplaced[0].op)}) in "
                f"{name(self.program)}"
            )
        return Outcome(self.title, tuple(violations), missing)

    def _forbidden(self, selected: Sequence[Collective]) -> list[Violation]:
        return [
            Violation(
                f"{self._name(row)} in {name(self.program)}: {counted(row.instructions, 'instruction')}, "
                f"{_executions(row)}, {exact_bytes_text(row.wire_bytes_per_device)} on the wire per "
                "device (none allowed)"
            )
            for row in traffic(selected)
        ]

    def _limited(self, selected: Sequence[Collective]) -> tuple[list[Violation], str | None]:
        """Return the violations of the limits, and the unknown facts if a limit may hold."""
        violations, unknown = [], None
        for limit, field, words in (
            (self.most_wire_bytes, "wire_bytes_per_device", "on the wire per device"),
            (self.most_payload_bytes, "payload_bytes", "of payload per device"),
        ):
            if limit is None:
                continue
            known = [one for one in selected if one.executions is not None]
            known = [one for one in known if getattr(one, field) is not None]
            total = sum((one.executions or 0) * getattr(one, field) for one in known)
            whole = len(known) == len(selected)
            if total > limit:
                up_to = "up to " if any(one.conditional for one in known) else ""
                least = "" if whole else "at least "
                violations.append(
                    Violation(
                        f"{self._selection()} in {name(self.program)}: {least}{up_to}"
                        f"{exact_bytes_text(total)} {words} in one run (limit {exact_bytes_text(limit)})"
                    )
                )
            elif not whole:
                first = next(one for one in selected if one not in known)
                unknown = (
                    f"unknown executions or bytes of {name(first.name)} ({name(first.op)}) in "
                    f"{name(self.program)}"
                )
        return violations, unknown

    def _selection(self) -> str:
        return f"{self.op or 'collectives'} over {name(self.axis) if self.axis else 'any axis'}"

    def _name(self, row: Traffic) -> str:
        return f"{name(row.op)} over {mesh_axes_text(row.mesh_axes, name)}"


def read_memory(fields: Fields) -> ProgramMemory:
    fields.require("most")
    figure = fields.choice("figure", FIGURES) or "peak"
    return ProgramMemory(fields.size("most") or 0, fields.text("program"), figure)


def read_collectives(fields: Fields) -> Collectives:
    return Collectives(
        fields.choice("op", OPS),
        fields.text("axis"),
        fields.text("program") or "train_step",
        fields.size("most_wire_bytes"),
        fields.size("most_payload_bytes"),
    )


def _programs(snapshot: Snapshot, wanted: str | None) -> tuple[Program, ...]:
    if not snapshot.programs:
        raise InvalidInput(
            "the Snapshot has no compiled program: inspect the layout with a target that compiles"
        )
    if wanted is None:
        return snapshot.programs
    check_known(wanted, [program.name for program in snapshot.programs], "program")
    return tuple(program for program in snapshot.programs if program.name == wanted)[:1]


def _executions(row: Traffic) -> str:
    if row.executions is None:
        return "unknown executions"
    up_to = "up to " if row.conditional else ""
    branch = " (in a branch)" if row.conditional else ""
    return f"{up_to}{counted(row.executions, 'execution')} per run{branch}"
