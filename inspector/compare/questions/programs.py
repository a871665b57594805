"""The rows about programs: collectives, memory and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from inspector.compare import origin
from inspector.compare.questions.question import UNKNOWN, Row, Statement, without_rejected
from inspector.core.collectives import Traffic, traffic
from inspector.core.formatting import bytes_text, counted, mesh_axes_text
from inspector.core.snapshot import Program, Snapshot
from inspector.core.statistics import statistics, statistics_text, sum_known
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.machines.prediction.cost import si_text
from inspector.machines.prediction.step_model import bound_text, modelled

COLLECTIVES, MEMORY, TIME = "Collectives", "Memory", "Time"
_SEPARATE_RUNS = (
    "Measured in separate runs on a shared machine, so there is no verdict. Time the layouts together for "
    "a reliable ratio."
)
_WIRE = "Bytes that one device sends in one run of the program, loops included."
_MODELLED = (
    "Bounds from the chip's published figures: the longest part alone, and all parts in sequence."
)
# `init` runs once, so it does not count when choosing a layout.
_LEFT_OUT = ("init",)
_FIRST = ("train_step", "apply")
_NO_CHIP = Statement("no chip chosen", excluded="no chip was chosen")

# The answer of one program of a Snapshot.
_AskProgram = Callable[[Snapshot, Program], Statement]


def program_rows(
    snapshots: Sequence[Snapshot], chip: Chip | None, reference: Chip | None
) -> list[Row]:
    """Return the rows of all programs.

    Args:
      chip: the chip for modelled memory and time. Without it, each compiled Snapshot uses its own chip.
      reference: the chip of the baseline.
    """
    names = program_names(snapshots)
    on_chip = f" on {chip.title}" if chip else ""
    rows = [row for name in names for row in _collectives(name, snapshots)]
    rows += [
        Row(MEMORY, f"{name} per device", "less", _ask(name, snapshots, _memory), "", name)
        for name in names
    ]
    rows.append(_fits(snapshots, chip, reference))
    times: tuple[tuple[str, _AskProgram, str], ...] = (
        (
            f"modelled{on_chip}",
            lambda s, p: _time(s, p, origin.chip(s, chip), reference),
            _MODELLED,
        ),
        ("measured", _measured, _SEPARATE_RUNS),
        ("FLOPs of all operations per device", _flops, ""),
        ("repeated work", _repeated, ""),
    )
    rows += [
        Row(TIME, f"{name} {title}", "less", _ask(name, snapshots, ask), note, name)
        for name in names
        for title, ask, note in times
    ]
    return without_rejected(rows, snapshots)


def program_names(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return the names of the programs that count when choosing a layout, the train step first."""
    found = dict.fromkeys(program.name for each in snapshots for program in each.programs)
    ordered = dict.fromkeys((*_FIRST, *found))
    return [name for name in ordered if name in found and name not in _LEFT_OUT]


def _ask(name: str, snapshots: Sequence[Snapshot], ask: _AskProgram) -> list[Statement]:
    """Return the answers about one program, or the reason why there is no answer."""
    statements = []
    for snapshot in snapshots:
        program = snapshot.program(name)
        if program is not None:
            statements.append(ask(snapshot, program))
        elif snapshot.programs:
            statements.append(Statement(f"no {name}", excluded=f"it has no program {name}"))
        elif snapshot.source.kind == "plan":
            why = "it is a plan: nothing was compiled"
            statements.append(Statement("not compiled", excluded=why))
        else:
            statements.append(Statement("no programs", excluded="it has no programs"))
    return statements


def _collectives(name: str, snapshots: Sequence[Snapshot]) -> Iterator[Row]:
    """Yield a row for all collectives of a program, then one per tuple of mesh axes."""
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
    yield Row(COLLECTIVES, f"{name}, all", "less", statements, _WIRE, name)
    for axes in by_axes:
        statements = _ask(name, snapshots, partial(_traffic, axes, found))
        yield Row(
            COLLECTIVES, f"{name}, over {mesh_axes_text(axes)}", "less", statements, _WIRE, name
        )


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
    found: Mapping[int, Sequence[Traffic]],
    snapshot: Snapshot,
    program: Program,
) -> Statement:
    rows = found.get(id(program))
    if rows is None:
        return Statement(UNKNOWN)
    names = snapshot.mesh.axis_names if snapshot.mesh else ()
    missing = " and ".join(name for name in axes or () if name not in names)
    if missing:
        return Statement(f"no axis {missing}", excluded=f"its mesh has no axis {missing}")
    own = sorted((row for row in rows if row.mesh_axes == axes), key=lambda row: row.op)
    counts = (
        f"{UNKNOWN if row.executions is None else f'{row.executions:,}'} {row.op}" for row in own
    )
    return _sent(own, ", ".join(counts))


def _sent(rows: Sequence[Traffic], executions: str) -> Statement:
    if not rows:
        return Statement("none", 0, parts={})
    wire = sum_known(row.wire_bytes_per_device for row in rows)
    limit = "up to " if any(row.conditional for row in rows) else ""
    return Statement(f"{limit}{bytes_text(wire)} in {executions}", wire)


def _memory(snapshot: Snapshot, program: Program) -> Statement:
    breakdown = memory.breakdown(snapshot, program)
    if breakdown is None or breakdown.total is None:
        return Statement(UNKNOWN)
    outputs = sum_known(part.bytes for part in breakdown.outputs) or 0
    parts = {
        "arguments": sum_known(part.bytes for part in breakdown.arguments) or 0,
        "outputs that are not donated": outputs - (breakdown.aliased or 0),
        "temporaries": breakdown.temporaries or 0,
        "code": (breakdown.code or 0) if breakdown.code_on_device else 0,
    }
    return Statement(bytes_text(breakdown.total), breakdown.total, parts=parts)


def _fits(snapshots: Sequence[Snapshot], chosen: Chip | None, reference: Chip | None) -> Row:
    chips = [origin.chip(snapshot, chosen) for snapshot in snapshots]
    statements = [_fit(snapshot, chip) for snapshot, chip in zip(snapshots, chips, strict=True)]
    if reference is not None and any(chip not in (None, reference) for chip in chips):
        for place, (one, chip) in enumerate(zip(statements, chips, strict=True)):
            if chip is not None:
                other = f"memory of a {chip.title}" if chip != reference else ""
                text, why = f"{one.text} ({chip.title})", one.excluded or other
                statements[place] = replace(one, text=text, excluded=why)
    titles = {chip.title for chip in chips if chip}
    title = f"Fits {titles.pop()}" if len(titles) == 1 else "Fits the chip"
    return Row(MEMORY, title, "less", statements)


def _fit(snapshot: Snapshot, chip: Chip | None) -> Statement:
    if chip is None:
        return _NO_CHIP
    fit = memory.fit(snapshot, chip)
    answer = UNKNOWN if fit.fits is None else "yes" if fit.fits else "no"
    if fit.needed is None:
        return Statement(answer)
    amounts = f"{bytes_text(fit.needed)} of {bytes_text(fit.capacity)}"
    if fit.at_least:
        why = "only its train state and batch are known, as nothing was compiled"
        return Statement(f"{answer}: at least {amounts}", excluded=why)
    if fit.basis == "estimate":
        why = "its memory is estimated, as nothing was compiled"
        return Statement(f"{answer}: about {amounts}, estimated", excluded=why)
    return Statement(f"{answer}, needs {amounts}", fit.needed)


def _time(
    snapshot: Snapshot, program: Program, chip: Chip | None, reference: Chip | None
) -> Statement:
    if chip is None:
        return _NO_CHIP
    if snapshot.mesh is None:
        return Statement(UNKNOWN)
    model = modelled(program, snapshot.mesh, chip)
    text = bound_text(model)
    if model.lower_seconds is not None and reference is not None and chip != reference:
        why = f"modelled on a {chip.title}"
        return Statement(f"{text} ({chip.title})", model.lower_seconds, why)
    return Statement(text, model.lower_seconds)


def _flops(_: Snapshot, program: Program) -> Statement:
    flops = program.flops_per_device
    return Statement(UNKNOWN if flops is None else si_text(flops, "FLOP"), flops)


def _repeated(snapshot: Snapshot, program: Program) -> Statement:
    """Return the share of matrix products that more than one device computes."""
    work = program.work.matmul if program.work else None
    ideal = program.ideal.matmul if program.ideal else None
    done = sum(one.flops for one in work or ()) * (snapshot.mesh.size if snapshot.mesh else 0)
    if ideal is None or not done:
        return Statement(UNKNOWN)
    # The compiler can also find a shorter way than the program as written.
    repeated = max(1 - sum(one.flops for one in ideal) / done, 0.0)
    return Statement("none" if repeated < 0.0005 else f"{repeated:.1%}", repeated)


def _measured(snapshot: Snapshot, program: Program) -> Statement:
    measured = statistics(program.seconds.steps) if program.seconds else None
    if measured is None:
        return Statement("not measured", excluded="nothing was timed")
    why = "measured in a separate run"
    emulated = "emulated: " if snapshot.source.kind == "cpu" else ""
    return Statement(f"{emulated}{statistics_text(measured)}", measured.median, why)
