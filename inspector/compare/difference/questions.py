"""The rows of the Board: the same questions to every Snapshot, answered relative to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from inspector.compare.difference import origin
from inspector.compare.difference.caveats import remark
from inspector.compare.difference.question import UNKNOWN, Better, Question, Row, Statement
from inspector.compare.difference.splits import elements_per_device
from inspector.core.collectives import Traffic, traffic
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text, counted, mesh_axes_text, mesh_text, times_text
from inspector.core.memory_kinds import in_host_memory
from inspector.core.rules.rule import rule_text
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Level, Program, Snapshot
from inspector.core.statistics import statistics, statistics_text, sum_known
from inspector.core.totals import STATE_GROUPS, Totals, totals
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.machines.prediction.cost import si_text
from inspector.machines.prediction.step_model import bound_text, modelled

LAYOUT, STATE, FINDINGS = "Layout", "Train state", "Findings"
COLLECTIVES, MEMORY, TIME = "Collectives", "Memory", "Time"
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
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
_NO_ARRAYS = Statement("none", excluded="it has no such arrays")
_NO_CHIP = Statement("no chip chosen", excluded="no chip was chosen")


def questions(
    snapshots: Sequence[Snapshot], baseline: int = 0, chip: Chip | None = None
) -> tuple[Question, ...]:
    """Return all rows in display order, with one answer per Snapshot.

    Args:
      baseline: the index of the Snapshot that the others are compared with.
      chip: the chip for modelled memory and time. Without it, each compiled Snapshot uses its own chip.

    Raises:
      InvalidInput: if there is no Snapshot at index `baseline`.
    """
    if not 0 <= baseline < len(snapshots):
        raise InvalidInput(
            f"baseline is {baseline}, but must be the index of one of {counted(len(snapshots), 'Snapshot')}"
        )
    reference = snapshots[baseline]
    remarks = [remark(reference, snapshot) for snapshot in snapshots]
    of_programs = [
        text or ("another compiler" if snapshot.source.kind != reference.source.kind else "")
        for text, snapshot in zip(remarks, snapshots, strict=True)
    ]
    layout = [Row(LAYOUT, title, None, [ask(each) for each in snapshots]) for title, ask in _LAYOUT]
    findings = [_findings(level, snapshots) for level in LEVELS]
    return tuple(
        row.compared(baseline, about)
        for rows, about in (
            (layout, None),
            (state_rows(snapshots), remarks),
            (program_rows(snapshots, chip, origin.chip(reference, chip)), of_programs),
            (findings, remarks),
        )
        for row in rows
    )


def state_rows(snapshots: Sequence[Snapshot]) -> list[Row]:
    """Return the rows about the train state, with elements if the bytes of a Snapshot are unknown."""
    rows = [
        Row(STATE, title, better, [_of(each, groups, ask) for each in snapshots])
        for title, better, groups, ask in _STATE
    ]
    rows.append(Row(STATE, "Largest array per device", "less", list(map(_largest, snapshots))))
    if any(totals(each, STATE_GROUPS).per_device is None for each in snapshots):
        elements = list(map(_in_elements, snapshots))
        rows += [
            Row(STATE, title, better, [_of(each, groups, ask) for each in elements])
            for title, better, groups, ask in _ELEMENTS
        ]
    return rows


def _of(snapshot: Snapshot, groups: Sequence[str], ask: Callable[[Totals], Statement]) -> Statement:
    found = totals(snapshot, tuple(groups))
    return ask(found) if found.arrays else _NO_ARRAYS


def _in_elements(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with elements instead of bytes."""
    arrays = (
        replace(
            array,
            bytes=array.elements,
            bytes_per_device=elements_per_device(array, snapshot.mesh),
        )
        for array in snapshot.arrays
    )
    return replace(snapshot, arrays=tuple(arrays))


def _findings(level: Level, snapshots: Sequence[Snapshot]) -> Row:
    counts = [sum(finding.level == level for finding in each.findings) for each in snapshots]
    better: Better | None = None if level == "note" else "less"
    statements = [_number(count, "none") for count in counts]
    return Row(FINDINGS, f"{level.capitalize()}s", better, statements)


def _number(value: int | None, zero: str = "0") -> Statement:
    return Statement(UNKNOWN if value is None else f"{value:,}" if value else zero, value)


def _bytes(value: int | None) -> Statement:
    return Statement(bytes_text(value), value)


def _times(factor: float | None) -> Statement:
    # A few replicated scalars change only digits that are not shown.
    return Statement(UNKNOWN if factor is None else f"{times_text(factor)}×", factor, as_read=True)


def _rules(snapshot: Snapshot) -> Statement:
    rules = recorded(snapshot)
    if rules is not None:
        return Statement(", ".join(map(rule_text, rules)) or "none")
    has_specs = isinstance((snapshot.layout or {}).get("specs"), dict)
    return Statement("none: the model has device axes" if has_specs else UNKNOWN)


def _largest(snapshot: Snapshot) -> Statement:
    arrays = [
        array
        for array in snapshot.arrays
        if array.group in STATE_GROUPS and not in_host_memory(array, snapshot.mesh)
    ]
    if not arrays:
        return _NO_ARRAYS
    if any(array.bytes_per_device is None for array in arrays):
        return Statement(UNKNOWN)
    largest = max(arrays, key=lambda array: array.bytes_per_device or 0)
    held = largest.bytes_per_device
    return Statement(f"{bytes_text(held)}, {largest.path}", held)


_LAYOUT: tuple[tuple[str, Callable[[Snapshot], Statement]], ...] = (
    ("Source", lambda each: Statement(origin.text(each))),
    ("Model", lambda each: Statement(origin.model(each) or UNKNOWN)),
    ("Mesh", lambda each: Statement(mesh_text(each.mesh, max_axes_of_size_1=0))),
    ("Devices", lambda each: _number(each.mesh.size if each.mesh else None)),
    ("Rules", _rules),
)
# Title, whether less is better, groups of arrays, and the answer about their totals.
_StateRow = tuple[str, Better | None, tuple[str, ...], Callable[[Totals], Statement]]
_STATE: tuple[_StateRow, ...] = (
    ("Arrays", None, STATE_GROUPS, lambda found: _number(found.arrays)),
    ("Bytes once", None, STATE_GROUPS, lambda found: _bytes(found.bytes)),
    ("Bytes per device", "less", STATE_GROUPS, lambda found: _bytes(found.per_device)),
    ("Parameters per device", "less", ("params",), lambda found: _bytes(found.per_device)),
    ("Optimizer state per device", "less", ("opt_state",), lambda found: _bytes(found.per_device)),
    ("Copies", "less", STATE_GROUPS, lambda found: _times(found.copies)),
    ("Duplicated on all devices", "less", STATE_GROUPS, lambda found: _bytes(found.duplicated)),
)
_ELEMENTS: tuple[_StateRow, ...] = (
    ("Elements once", None, STATE_GROUPS, lambda found: _number(found.bytes)),
    ("Elements per device", "less", STATE_GROUPS, lambda found: _number(found.per_device)),
    ("Parameter elements per device", "less", ("params",), lambda it: _number(it.per_device)),
    ("Copies of elements", "less", STATE_GROUPS, lambda found: _times(found.copies)),
)


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
        ("FLOPs per device", _flops, ""),
        ("repeated work", _repeated, ""),
    )
    return rows + [
        Row(TIME, f"{name} {title}", "less", _ask(name, snapshots, ask), note, name)
        for name in names
        for title, ask, note in times
    ]


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
