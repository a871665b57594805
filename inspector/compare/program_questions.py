"""The rows about programs: collectives, memory and time. Those of the step are in `measures`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from inspector.assessment.measured import measured_step
from inspector.compare.amounts import sent_parts
from inspector.compare.compared import Compared, work_of
from inspector.compare.question import UNKNOWN, QuestionRow, Statement, without_rejected
from inspector.compiled.collective_roles import ROLES, by_role
from inspector.machines import targets
from inspector.machines.hardware import si_text
from inspector.prediction import memory
from inspector.prediction.step_program import ONCE
from inspector.records.assessment import FLOPS, TRAFFIC
from inspector.records.assessment import MEMORY as MEMORY_TITLE
from inspector.records.snapshot import Collective, Program, Snapshot
from inspector.records.statistics import statistics, statistics_text, sum_known
from inspector.sharding.meshes import on_cpu
from inspector.sharding.traffic import Traffic, traffic
from inspector.text.formatting import bytes_text, counted, mesh_axes_text
from inspector.text.program_names import noun, title

COLLECTIVES, MEMORY, TIME = "Collectives", "Memory", "Time"
_MEMORY, _FLOPS = (title.lower().replace("flops", "FLOPs") for title in (MEMORY_TITLE, FLOPS))
_FIRST = ("train_step", "apply")

# The answer of one program of a Snapshot.
_AskProgram = Callable[[Snapshot, Program], Statement]


def program_rows(every: Sequence[Compared], baseline: int) -> list[QuestionRow]:
    """Return the rows of all programs, without what `measures` says of the step."""
    snapshots = [compared.snapshot for compared in every]
    names = program_names(snapshots)
    steps = {compared.assessment.program for compared in every}
    needing = {need.program for compared in every if (need := compared.assessment.memory) is not None}
    work = [work_of(every[baseline], compared) for compared in every]
    rows = [row.of_work(work) for name in names for row in _collectives(name, snapshots, steps != {name})]
    rows += [
        QuestionRow(MEMORY, f"{title(name)}, {_MEMORY}", "less", _ask(name, snapshots, _memory), name)
        for name in names
        if needing != {name}
    ]
    for name in names:
        if steps != {name}:
            row = QuestionRow(TIME, f"{title(name)}, {_FLOPS}", "less", _ask(name, snapshots, _flops), name)
            rows.append(row.of_work(work))
        recorded = [compared.recorded for compared in every]
        times = [
            ("repeated matrix products", snapshots, _repeated),
            ("measured", recorded, _measured),
        ]
        programs = [snapshot.program(name) for snapshot in recorded]
        if any(program is not None and program.trace is not None for program in programs):
            times.append(("measured and predicted", recorded, _next_to_prediction))
        rows += [
            QuestionRow(TIME, f"{title(name)}, {what}", "less", _ask(name, of, ask), name)
            for what, of, ask in times
        ]
    return without_rejected(rows, snapshots)


def program_names(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return the names of the programs that count when choosing a layout, the train step first."""
    found = dict.fromkeys(program.name for snapshot in snapshots for program in snapshot.programs)
    ordered = dict.fromkeys((*_FIRST, *found))
    return [name for name in ordered if name in found and name not in ONCE]


def _ask(name: str, snapshots: Sequence[Snapshot], ask: _AskProgram) -> list[Statement]:
    """Return the answers about one program, or the reason why there is no answer."""
    statements = []
    for snapshot in snapshots:
        program = snapshot.program(name)
        if program is not None:
            statements.append(ask(snapshot, program))
        elif snapshot.programs:
            why = f"it does not have {noun(name)}"
            statements.append(Statement(f"without {noun(name)}", excluded=why))
        elif snapshot.source.kind == "plan":
            why = "it is a plan: nothing was compiled"
            statements.append(Statement("not compiled", excluded=why))
        else:
            statements.append(Statement("no programs", excluded="it has no programs"))
    return statements


def _collectives(name: str, snapshots: Sequence[Snapshot], with_all: bool) -> Iterator[QuestionRow]:
    """Yield a row for all collectives of a program if `with_all`, then one per tuple of mesh axes.

    If the meshes have axes with different names, one per role: what the collectives do for the model.
    """
    programs = [snapshot.program(name) for snapshot in snapshots]
    traffics = {
        id(program): traffic(program.collectives)
        for program in programs
        if program is not None and program.collectives is not None
    }
    everywhere = dict.fromkeys(one.mesh_axes for each in traffics.values() for one in each)
    # Groups of one device each move nothing.
    by_axes = sorted(everywhere.keys() - {()}, key=lambda axes: (axes is None, axes or ()))
    if with_all:
        statements = _ask(name, snapshots, lambda _, p: _all_traffic(traffics.get(id(p))))
        yield QuestionRow(COLLECTIVES, f"{title(name)}, {TRAFFIC.lower()}", "less", statements, name)
    meshes = [
        mesh
        for snapshot, program in zip(snapshots, programs, strict=True)
        if program and (mesh := snapshot.mesh_of(program))
    ]
    if any(set(axes or ()) - set(mesh.axis_names) for axes in by_axes for mesh in meshes):
        yield from _by_role(name, snapshots)
        return
    for axes in by_axes:
        statements = _ask(name, snapshots, partial(_traffic, axes, traffics))
        heading = f"{title(name)}, over {mesh_axes_text(axes)}"
        yield QuestionRow(COLLECTIVES, heading, "less", statements, name)


def _by_role(name: str, snapshots: Sequence[Snapshot]) -> Iterator[QuestionRow]:
    """Yield a row per role of the collectives of a program."""
    collectives = {
        id(program): by_role(program, snapshot)
        for snapshot in snapshots
        if (program := snapshot.program(name)) is not None and program.collectives is not None
    }
    present = {one for each in collectives.values() for one in each}
    for role in ROLES:
        if role in present:
            statements = _ask(name, snapshots, partial(_traffic_of, role, collectives))
            yield QuestionRow(COLLECTIVES, f"{title(name)}, {role}", "less", statements, name)


def _traffic_of(
    role: str,
    collectives: Mapping[int, Mapping[str | None, tuple[Collective, ...]]],
    _: Snapshot,
    program: Program,
) -> Statement:
    roles = collectives.get(id(program))
    if roles is None or None in roles:
        return Statement(UNKNOWN)
    return _counted(traffic(roles.get(role, ())))


def _all_traffic(rows: Sequence[Traffic] | None) -> Statement:
    if rows is None:
        return Statement(UNKNOWN)
    times = sum_known(row.executions for row in rows)
    statement = _sent(rows, _times(times, "execution"))
    return replace(statement, parts=sent_parts(rows))


def _traffic(
    axes: tuple[str, ...] | None,
    traffics: Mapping[int, Sequence[Traffic]],
    _: Snapshot,
    program: Program,
) -> Statement:
    rows = traffics.get(id(program))
    if rows is None:
        return Statement(UNKNOWN)
    return _counted([row for row in rows if row.mesh_axes == axes])


def _counted(rows: Sequence[Traffic]) -> Statement:
    """Return the bytes of the rows and the executions of each operation."""
    executions: dict[str, list[int | None]] = {}
    for row in rows:
        executions.setdefault(row.op, []).append(row.executions)
    sums = ((op, sum_known(executions[op])) for op in sorted(executions))
    return _sent(rows, ", ".join(_times(times, op) for op, times in sums))


def _times(executions: int | None, what: str) -> str:
    return f"an unknown number of {what}s" if executions is None else counted(executions, what)


def _sent(rows: Sequence[Traffic], executions: str) -> Statement:
    if not rows:
        return Statement("none", 0, parts={})
    wire = sum_known(row.wire_bytes_per_device for row in rows)
    limit = "up to " if any(row.conditional for row in rows) else ""
    sent = f"{UNKNOWN} bytes" if wire is None else f"{limit}{bytes_text(wire)}"
    return Statement(f"{sent} in {executions}", wire)


def _memory(snapshot: Snapshot, program: Program) -> Statement:
    breakdown = memory.breakdown(snapshot, program)
    if breakdown is None or breakdown.needed is None:
        return Statement(UNKNOWN)
    return Statement(bytes_text(breakdown.needed), breakdown.needed, parts=dict(breakdown.parts))


def _flops(_: Snapshot, program: Program) -> Statement:
    flops = program.flops_per_device
    return Statement(UNKNOWN if flops is None else si_text(flops, "FLOP"), flops)


def _repeated(snapshot: Snapshot, program: Program) -> Statement:
    """Return the share of matrix products that more than one device computes."""
    ratio = program.repeated_on(snapshot.mesh_of(program))
    if not ratio:
        return Statement(UNKNOWN)
    # The compiler can also find a shorter way than the program as written.
    repeated = max(1 - 1 / ratio, 0.0)
    return Statement("none" if repeated < 0.0005 else f"{repeated:.1%}", repeated)


def _next_to_prediction(snapshot: Snapshot, program: Program) -> Statement:
    """Return the largest difference of a profile from its prediction."""
    measured = measured_step(snapshot, program, targets.chip_of(snapshot))
    if measured is None:
        return Statement("not profiled", excluded="it has no profile")
    return Statement(measured.sentence or f"{measured.measured.text}, not predicted")


def _measured(snapshot: Snapshot, program: Program) -> Statement:
    measured = statistics(program.seconds.steps) if program.seconds else None
    if measured is None:
        return Statement("not measured", excluded="nothing was timed")
    why = "measured in a separate run: time the layouts together"
    emulated = "emulated: " if on_cpu(snapshot.mesh_of(program)) else ""
    return Statement(f"{emulated}{statistics_text(measured)}", measured.median, why)
