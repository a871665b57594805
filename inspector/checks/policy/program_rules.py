"""Rules about compiled programs: their memory, and the bytes that their collectives move."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.checks.policy.fields import Fields, check_known
from inspector.checks.policy.outcome import Check, Violation, name
from inspector.core.collectives import OPS, Traffic, traffic
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, exact_bytes_text, mesh_axes_text
from inspector.core.snapshot import Collective, Program, Snapshot
from inspector.machines.prediction import memory

# `peak`: the most that is alive at one time with the code, as everywhere else; of a plan the interval of its
# estimate. `total`: arguments, outputs and temporaries without aliased bytes, plus code in device memory.
FIGURES = ("peak", "total")
_READ = {"peak": "needed", "total": "total"}


def program_memory(fields: Fields) -> Check:
    """A program takes at most `most` bytes on one device. Without `program`, every program does."""
    most = fields.size("most", required=True) or 0
    figure = fields.choice("figure", FIGURES) or "peak"
    wanted = fields.text("program")

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        violations, unknown = [], []
        for program in _programs(snapshot, wanted):
            parts = memory.breakdown(snapshot, program)
            if parts is None and figure == "peak":
                low, high = memory.estimated_interval(snapshot, program) or (None, None)
            else:
                low = high = None if parts is None else getattr(parts, _READ[figure])
            taken = low
            if taken is None or high is None or taken <= most < high:
                unknown.append(name(program.name))
            elif taken > most:
                violations.append(
                    Violation(
                        f"{name(program.name)}: {figure} memory {exact_bytes_text(taken)} per device "
                        f"(limit {exact_bytes_text(most)})"
                    )
                )
        return violations, f"unknown {figure} memory of {', '.join(unknown)}" if unknown else None

    return check


def collectives(fields: Fields) -> Check:
    """A program has no such collectives, or they move at most this many bytes in one run.

    A collective runs over an axis if the axis is one of its `mesh_axes`. Collectives in branches count;
    those with 0 executions do not. The limits are for the sums over executions on one device.
    """
    op, axis = fields.choice("op", OPS), fields.text("axis")
    wanted = fields.text("program") or "train_step"
    limits = [
        ("wire_bytes_per_device", "on the wire per device", fields.size("most_wire_bytes")),
        ("payload_bytes", "of payload per device", fields.size("most_payload_bytes")),
    ]
    selection = f"{op or 'collectives'} over {name(axis) if axis else 'any axis'} in {name(wanted)}"

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        (program,) = _programs(snapshot, wanted)
        mesh = snapshot.mesh_of(program)
        if axis is not None and mesh is not None:
            check_known(axis, mesh.axis_names, "axis")
        if program.collectives is None:
            return [], f"unknown collectives of {name(program.name)}"
        of_op = [
            collective
            for collective in program.collectives
            if op in (None, collective.op) and collective.executions != 0
        ]
        unplaced = [collective for collective in of_op if collective.mesh_axes is None and axis is not None]
        selected = [
            collective for collective in of_op if axis is None or axis in (collective.mesh_axes or ())
        ]
        missing = f"unknown mesh axes of {_first_name(unplaced)} in {name(wanted)}" if unplaced else None
        if all(limit is None for _, _, limit in limits):
            return [_forbidden(row, wanted) for row in traffic(selected)], missing
        violations, unknown = [], None
        for field, words, limit in limits:
            known = [
                collective
                for collective in selected
                if None not in (collective.executions, getattr(collective, field))
            ]
            total = sum((collective.executions or 0) * getattr(collective, field) for collective in known)
            whole = len(known) == len(selected)
            if limit is not None and total > limit:
                up_to = "up to " if any(collective.conditional for collective in known) else ""
                least = "" if whole else "at least "
                violations.append(
                    Violation(
                        f"{selection}: {least}{up_to}{exact_bytes_text(total)} {words} in one run "
                        f"(limit {exact_bytes_text(limit)})"
                    )
                )
            elif limit is not None and not whole:
                first = _first_name([collective for collective in selected if collective not in known])
                unknown = f"unknown executions or bytes of {first} in {name(wanted)}"
        return violations, missing if violations else unknown or missing

    return check


def _first_name(collectives: Sequence[Collective]) -> str:
    return f"{name(collectives[0].name)} ({name(collectives[0].op)})"


def _forbidden(row: Traffic, program: str) -> Violation:
    executions = "unknown executions"
    if row.executions is not None:
        executions = f"{counted(row.executions, 'execution')} per run"
        executions = f"up to {executions} (in a branch)" if row.conditional else executions
    return Violation(
        f"{name(row.op)} over {mesh_axes_text(row.mesh_axes, name)} in {name(program)}: "
        f"{counted(row.instructions, 'instruction')}, {executions}, "
        f"{exact_bytes_text(row.wire_bytes_per_device)} on the wire per device (none allowed)"
    )


def _programs(snapshot: Snapshot, wanted: str | None) -> tuple[Program, ...]:
    if not snapshot.programs:
        raise InvalidInput("the Snapshot has no program: make it with `inspect`, `run` or `import hlo`")
    if wanted is None:
        return snapshot.programs
    check_known(wanted, [program.name for program in snapshot.programs], "program")
    return tuple(program for program in snapshot.programs if program.name == wanted)[:1]
