"""The rows about programs: collectives, memory and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from inspector.compare.questions.question import UNKNOWN, Row, Statement, without_rejected
from inspector.compare.questions.time_answer import time_answer
from inspector.compare.verdict import Compared
from inspector.compiled.collective_roles import ROLES, by_role
from inspector.core.assessment import Assessment
from inspector.core.collectives import Traffic, traffic
from inspector.core.formatting import bytes_text, counted, mesh_axes_text
from inspector.core.program_names import noun, title
from inspector.core.snapshot import Collective, Program, Snapshot
from inspector.core.statistics import statistics, statistics_text, sum_known
from inspector.core.step_program import ONCE
from inspector.machines import hardware
from inspector.machines.prediction import memory
from inspector.machines.prediction.cost import si_text

COLLECTIVES, MEMORY, TIME = "Collectives", "Memory", "Time"
_SEPARATE_RUNS = (
    "Measured in separate runs on a shared machine, so there is no verdict. Time the layouts together for "
    "a reliable ratio."
)
_WIRE = "Bytes that one device sends in one run of the program, loops included."
_BY_ROLE = "The axes of the meshes have different names, so the rows are by what is moved."
_NEEDED = "Most bytes in use at one time on one device, by the program that needs the most."
_PREDICTED = (
    "Predicted time of one run, with the interval that is expected to contain 80% of measured steps. The "
    "ratio of two layouts of one model on one chip is known better than each time, so it has an interval of "
    "its own."
)
_FIRST = ("train_step", "apply")

# The answer of one program of a Snapshot.
_AskProgram = Callable[[Snapshot, Program], Statement]


def program_rows(every: Sequence[Compared], baseline: int) -> list[Row]:
    """Return the rows of all programs.

    Args:
      baseline: the index of the layout that the others are compared with.
    """
    snapshots = [compared.snapshot for compared in every]
    names = program_names(snapshots)
    rows = [row for name in names for row in _collectives(name, snapshots)]
    rows.append(_needed(every, baseline))
    rows += [
        Row(MEMORY, f"{title(name)} per device", "less", _ask(name, snapshots, _memory), "", name)
        for name in names
    ]
    rows.append(_step(every, baseline))
    times: tuple[tuple[str, _AskProgram, str], ...] = (
        ("measured", _measured, _SEPARATE_RUNS),
        ("FLOPs of all operations per device", _flops, ""),
        ("repeated matrix products", _repeated, ""),
    )
    rows += [
        Row(TIME, f"{title(name)}, {what}", "less", _ask(name, snapshots, ask), note, name)
        for name in names
        for what, ask, note in times
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


def _collectives(name: str, snapshots: Sequence[Snapshot]) -> Iterator[Row]:
    """Yield a row for all collectives of a program, then one per tuple of mesh axes.

    If the meshes have axes with different names, one per role: what the collectives do for the model.
    """
    programs = [snapshot.program(name) for snapshot in snapshots]
    found = {
        id(program): traffic(program.collectives)
        for program in programs
        if program is not None and program.collectives is not None
    }
    everywhere = dict.fromkeys(one.mesh_axes for each in found.values() for one in each)
    # Groups of one device each move nothing.
    by_axes = sorted(everywhere.keys() - {()}, key=lambda axes: (axes is None, axes or ()))
    statements = _ask(name, snapshots, lambda _, p: _all_traffic(found.get(id(p))))
    yield Row(COLLECTIVES, f"{title(name)}, all", "less", statements, _WIRE, name)
    meshes = [
        mesh
        for snapshot, program in zip(snapshots, programs, strict=True)
        if program and (mesh := snapshot.mesh_of(program))
    ]
    if any(set(axes or ()) - set(mesh.axis_names) for axes in by_axes for mesh in meshes):
        yield from _by_role(name, snapshots)
        return
    for axes in by_axes:
        statements = _ask(name, snapshots, partial(_traffic, axes, found))
        yield Row(
            COLLECTIVES,
            f"{title(name)}, over {mesh_axes_text(axes)}",
            "less",
            statements,
            _WIRE,
            name,
        )


def _by_role(name: str, snapshots: Sequence[Snapshot]) -> Iterator[Row]:
    """Yield a row per role of the collectives of a program."""
    found = {
        id(program): by_role(program, snapshot)
        for snapshot in snapshots
        if (program := snapshot.program(name)) is not None and program.collectives is not None
    }
    present = {one for each in found.values() for one in each}
    for role, meaning in ROLES.items():
        if role in present:
            statements = _ask(name, snapshots, partial(_traffic_of, role, found))
            note = f"{meaning} {_BY_ROLE} {_WIRE}"
            yield Row(COLLECTIVES, f"{title(name)}, {role}", "less", statements, note, name)


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
    statement = _sent(rows, UNKNOWN if times is None else counted(times, "execution"))
    parts = {
        f"{row.op} over {mesh_axes_text(row.mesh_axes)}": row.wire_bytes_per_device
        for row in rows
        if row.wire_bytes_per_device is not None
    }
    return replace(statement, parts=parts if len(parts) == len(rows) else None)


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
    counts = (f"{UNKNOWN if times is None else f'{times:,}'} {op}" for op, times in sums)
    return _sent(rows, ", ".join(counts))


def _sent(rows: Sequence[Traffic], executions: str) -> Statement:
    if not rows:
        return Statement("none", 0, parts={})
    wire = sum_known(row.wire_bytes_per_device for row in rows)
    limit = "up to " if any(row.conditional for row in rows) else ""
    return Statement(f"{limit}{bytes_text(wire)} in {executions}", wire)


def _memory(snapshot: Snapshot, program: Program) -> Statement:
    breakdown = memory.breakdown(snapshot, program)
    if breakdown is None or breakdown.needed is None:
        return Statement(UNKNOWN)
    return Statement(bytes_text(breakdown.needed), breakdown.needed, parts=dict(breakdown.parts))


def _needed(every: Sequence[Compared], baseline: int) -> Row:
    """Return the row with what each layout needs on one device, and whether that fits."""
    reference = every[baseline].assessment
    statements = []
    for compared in every:
        need, chip = compared.assessment.memory, hardware.CHIPS.get(compared.assessment.chip or "")
        if need is None:
            statements.append(Statement(UNKNOWN))
            continue
        fits = {True: ", fits", False: ", does not fit", None: ""}[need.fits]
        where = "" if chip is None else f" ({chip.title})"
        excluded = ""
        if need.at_least:
            excluded = "only what its arrays need is known: it was not compiled for this machine"
        elif _basis(compared.assessment) != _basis(reference):
            excluded = "its memory is known from other evidence than that of the baseline"
        elif compared.assessment.chip != reference.chip:
            excluded = "on another chip"
        statements.append(Statement(f"{need.text}{fits}{where}", need.peak_bytes, excluded))
    return Row(MEMORY, "Needed on one device", "less", statements, _NEEDED)


def _basis(assessment: Assessment) -> bool:
    """Return whether memory is known from a compiler."""
    return assessment.evidence is not None and not assessment.evidence.before_compile


def _step(every: Sequence[Compared], baseline: int) -> Row:
    """Return the row with the step of each layout, and the verdicts."""
    texts = []
    for compared in every:
        step, chip = compared.assessment.step, hardware.CHIPS.get(compared.assessment.chip or "")
        if step is None:
            texts.append(UNKNOWN)
            continue
        where = "emulated devices" if chip is None else chip.title
        texts.append(f"{step.text}, {step.kind} on {where}")
    values = [
        None if compared.assessment.step is None else compared.assessment.step.seconds for compared in every
    ]
    answers = tuple(
        time_answer(every[baseline], compared, value, text)
        for compared, value, text in zip(every, values, texts, strict=True)
    )
    statements = [Statement(text, value) for text, value in zip(texts, values, strict=True)]
    return Row(TIME, "One step", "less", statements, _PREDICTED, answers=answers)


def _flops(_: Snapshot, program: Program) -> Statement:
    flops = program.flops_per_device
    return Statement(UNKNOWN if flops is None else si_text(flops, "FLOP"), flops)


def _repeated(snapshot: Snapshot, program: Program) -> Statement:
    """Return the share of matrix products that more than one device computes."""
    work = program.work.matmul if program.work else None
    ideal = program.ideal.matmul if program.ideal else None
    mesh = snapshot.mesh_of(program)
    done = sum(product.flops for product in work or ()) * (mesh.size if mesh else 0)
    if ideal is None or not done:
        return Statement(UNKNOWN)
    # The compiler can also find a shorter way than the program as written.
    repeated = max(1 - sum(product.flops for product in ideal) / done, 0.0)
    return Statement("none" if repeated < 0.0005 else f"{repeated:.1%}", repeated)


def _measured(snapshot: Snapshot, program: Program) -> Statement:
    measured = statistics(program.seconds.steps) if program.seconds else None
    if measured is None:
        return Statement("not measured", excluded="nothing was timed")
    why = "measured in a separate run"
    emulated = "emulated: " if snapshot.source.kind == "cpu" else ""
    return Statement(f"{emulated}{statistics_text(measured)}", measured.median, why)
