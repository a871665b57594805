"""Rules about compiled programs: the memory that one takes, and what its collectives move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.checks.policy.fields import Fields, refuse_unknown
from inspector.checks.policy.outcome import Outcome, Violation, name
from inspector.compiled import hlo
from inspector.core.collectives import OPS, traffic
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, exact_bytes_text, mesh_axes_text
from inspector.core.snapshot import Collective, Program, Snapshot
from inspector.machines.prediction import memory

FIGURES = {
    "peak": "the most that is alive at one time, as the compiler says",
    "total": "arguments + outputs + temporaries − aliased, plus code where it lives in the device's memory",
}


@dataclass(frozen=True)
class ProgramMemory:
    """A program takes at most so many bytes of one device; each of them where none is named."""

    most: int
    program: str | None
    figure: str
    title: str = "memory"

    def outcome(self, found: Snapshot) -> Outcome:
        violations, unknown = [], []
        for program in _programs(found, self.program):
            one = memory.breakdown(found, program)
            taken = None if one is None else one.peak if self.figure == "peak" else one.total
            if taken is None:
                unknown.append(name(program.name))
            elif taken > self.most:
                violations.append(
                    Violation(
                        f"{name(program.name)}: {self.figure} memory {exact_bytes_text(taken)} on one "
                        f"device, at most {exact_bytes_text(self.most)} may be"
                    )
                )
        missing = (
            f"the {self.figure} memory of {', '.join(unknown)} is unknown" if unknown else None
        )
        return Outcome(self.title, tuple(violations), missing)


@dataclass(frozen=True)
class Collectives:
    """A program has none of these collectives, or moves at most so many bytes with them in one run.

    A collective runs over an axis if that is among the mesh axes that make its groups. One that may run
    counts, also in a branch that is not always taken; one that a loop of no turns holds does not.
    `most_wire_bytes` and `most_payload_bytes` limit the sums, of one device and one run with every branch
    taken, of `wire_bytes_per_device` and `payload_bytes` times executions.
    """

    op: str | None
    axis: str | None
    program: str
    most_wire_bytes: int | None
    most_payload_bytes: int | None
    title: str = "collectives"

    def outcome(self, found: Snapshot) -> Outcome:
        (program,) = _programs(found, self.program)
        if self.axis is not None and found.mesh is not None:
            refuse_unknown(self.axis, found.mesh.axis_names, "axis")
        if program.collectives is None:
            return Outcome(
                self.title, (), f"the collectives of {name(program.name)} are not counted"
            )
        meant = [one for one in program.collectives if self._is_op(one) and one.executions != 0]
        unplaced = [one for one in meant if one.mesh_axes is None and self.axis is not None]
        meant = [one for one in meant if self.axis is None or self.axis in (one.mesh_axes or ())]
        if self.most_wire_bytes is None and self.most_payload_bytes is None:
            violations = self._forbidden(meant)
        else:
            violations, unknown = self._limited(meant)
            if unknown is not None and not violations:
                return Outcome(self.title, (), unknown)
        missing = None
        if unplaced:
            missing = (
                f"no mesh axes are known of {name(unplaced[0].name)} ({name(unplaced[0].op)}) in "
                f"{name(self.program)}"
            )
        return Outcome(self.title, tuple(violations), missing)

    def _is_op(self, one: Collective) -> bool:
        return self.op is None or one.op == self.op

    def _forbidden(self, meant: Sequence[Collective]) -> list[Violation]:
        return [
            Violation(
                f"{self._name(row)} in {name(self.program)}: {counted(row.instructions, 'instruction')}, "
                f"{_executions(row)}, {exact_bytes_text(row.wire_bytes_per_device)} on the wire per "
                "device; there may be none"
            )
            for row in traffic(meant)
        ]

    def _limited(self, meant: Sequence[Collective]) -> tuple[list[Violation], str | None]:
        """The limits that are exceeded; and what is not known of those that are not, so far as known."""
        violations, unknown = [], None
        for limit, field, words in (
            (self.most_wire_bytes, "wire_bytes_per_device", "on the wire per device"),
            (self.most_payload_bytes, "payload_bytes", "of payload per device"),
        ):
            if limit is None:
                continue
            known = [one for one in meant if one.executions is not None]
            known = [one for one in known if getattr(one, field) is not None]
            total = sum((one.executions or 0) * getattr(one, field) for one in known)
            whole = len(known) == len(meant)
            if total > limit:
                up_to = "up to " if any(one.conditional for one in known) else ""
                least = "" if whole else "at least "
                violations.append(
                    Violation(
                        f"{self._meant()} in {name(self.program)}: {least}{up_to}{exact_bytes_text(total)} "
                        f"{words} in one run, at most {exact_bytes_text(limit)} may be"
                    )
                )
            elif not whole:
                first = next(one for one in meant if one not in known)
                unknown = (
                    f"how often {name(first.name)} ({name(first.op)}) in {name(self.program)} runs, or "
                    "what it moves, is unknown"
                )
        return violations, unknown

    def _meant(self) -> str:
        return f"{self.op or 'collectives'} over {name(self.axis) if self.axis else 'any axis'}"

    def _name(self, row: hlo.Traffic) -> str:
        return f"{name(row.op)} over {mesh_axes_text(row.mesh_axes, name)}"


def read_memory(fields: Fields) -> ProgramMemory:
    """`most`, `program`, `figure`."""
    fields.require("most")
    most = fields.size("most")
    assert most is not None, "a required field is there"
    return ProgramMemory(most, fields.text("program"), fields.choice("figure", FIGURES) or "peak")


def read_collectives(fields: Fields) -> Collectives:
    """`op`, `axis`, `program`, `most_wire_bytes`, `most_payload_bytes`."""
    return Collectives(
        fields.choice("op", OPS),
        fields.text("axis"),
        fields.text("program") or "train_step",
        fields.size("most_wire_bytes"),
        fields.size("most_payload_bytes"),
    )


def _programs(found: Snapshot, wanted: str | None) -> tuple[Program, ...]:
    if not found.programs:
        raise InvalidInput(
            "the Snapshot has no compiled program: inspect the layout with a target that compiles"
        )
    if wanted is None:
        return found.programs
    refuse_unknown(wanted, [program.name for program in found.programs], "program")
    return tuple(program for program in found.programs if program.name == wanted)[:1]


def _executions(row: hlo.Traffic) -> str:
    if row.executions is None:
        return "how often they run is unknown"
    up_to = "up to " if row.conditional else ""
    branch = " (in a branch that may not be taken)" if row.conditional else ""
    return f"{up_to}{counted(row.executions, 'execution')} a run{branch}"
