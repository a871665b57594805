"""Questions about compiled programs: collectives by mesh axis, memory, work, time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inspector.compare.difference import origin
from inspector.compare.difference.answers import Question, Statement, question
from inspector.core.collectives import Traffic, traffic
from inspector.core.formatting import bytes_text, counted, seconds_text
from inspector.core.snapshot import Program, Snapshot
from inspector.core.statistics import statistics
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.machines.prediction.cost import si_text
from inspector.machines.prediction.step_model import Modelled, bound_text, modelled

COLLECTIVES, MEMORY, TIME = "Collectives", "Memory", "Time"
APART = (
    "Measured in runs of their own, so that no verdict is given: what else the machine did is in them. "
    "Time them together for a fair ratio."
)
OWN_RUN = "measured in a run of its own"  # of one answer, what `APART` says of the row
OTHER_COMPILER = "another compiler"
WIRE = "Bytes that one device sends in one run of the program, every loop counted."
# What init does is done once, and nobody decides between layouts by it.
_LEFT_OUT = ("init",)
# Programs in the order in which people ask for them; others follow by name.
_FIRST = ("train_step", "apply")
_ALL = object()


def program_questions(
    snapshots: Sequence[Snapshot], baseline: int, chip: Chip | None, remarks: Sequence[str]
) -> list[Question]:
    """Collectives of every program by mesh axes, then memory, then work and time."""
    names = _names(snapshots)
    kinds = [found.source.kind for found in snapshots]
    remarks = [
        remark or (OTHER_COMPILER if kind != kinds[baseline] else "")
        for remark, kind in zip(remarks, kinds, strict=True)
    ]
    made: list[Question] = []
    for name in names:
        made += _collectives(name, snapshots, baseline, remarks)
    for name in names:
        statements = [_memory(found, name) for found in snapshots]
        title = f"{name} per device"
        made.append(question(MEMORY, title, statements, baseline, "less", remarks=remarks))
    made.append(_fits(snapshots, baseline, chip, remarks))
    for name in names:
        made += _work_and_time(name, snapshots, baseline, chip, remarks)
    return made


def _names(snapshots: Iterable[Snapshot]) -> list[str]:
    names = dict.fromkeys(one.name for found in snapshots for one in found.programs)
    ordered = [name for name in _FIRST if name in names]
    return ordered + [name for name in names if name not in (*_FIRST, *_LEFT_OUT)]


def _none(found: Snapshot, name: str) -> Statement:
    """The answer of a Snapshot that has nothing of this program, and why."""
    if found.programs:
        return Statement(f"no {name}", excluded=f"it has no program {name}")
    if found.source.kind == "plan":
        return Statement("not compiled", excluded="it is planned only: nothing was compiled")
    return Statement("no programs", excluded=f"it is {origin.text(found)}, without programs")


# --- Collectives ----------------------------------------------------------------------------------


def _collectives(
    name: str, snapshots: Sequence[Snapshot], baseline: int, remarks: Sequence[str]
) -> list[Question]:
    rows = [_traffic(found.program(name)) for found in snapshots]
    along = dict.fromkeys(one.mesh_axes for each in rows for one in each or ())
    made = []
    for axes in (_ALL, *sorted(along, key=lambda axes: (axes is None, axes or ()))):
        if axes == ():
            continue  # groups of one device each move nothing
        statements = [
            _none(found, name) if found.program(name) is None else _along(axes, each, found)
            for found, each in zip(snapshots, rows, strict=True)
        ]
        title = f"{name}, {_axes_text(axes)}"
        made.append(question(COLLECTIVES, title, statements, baseline, "less", WIRE, remarks))
    return made


def _traffic(program: Program | None) -> tuple[Traffic, ...] | None:
    if program is None or program.collectives is None:
        return None
    return traffic(program.collectives)


def _axes_text(axes: object) -> str:
    if axes is _ALL:
        return "all"
    return "over unknown axes" if axes is None else f"over {' × '.join(axes)}"


def _along(axes: object, rows: tuple[Traffic, ...] | None, found: Snapshot) -> Statement:
    if rows is None:
        return Statement("unknown")
    names = found.mesh.axis_names if found.mesh else ()
    if isinstance(axes, tuple) and not set(axes) <= set(names):
        missing = " and ".join(name for name in axes if name not in names)
        return Statement(f"no axis {missing}", excluded=f"its mesh has no axis {missing}")
    mine = [row for row in rows if axes is _ALL or row.mesh_axes == axes]
    wire = memory.summed(row.wire_bytes_per_device for row in mine)
    times = memory.summed(row.executions for row in mine)
    if not mine:
        return Statement("none", 0)
    most = "up to " if any(row.conditional for row in mine) else ""
    ops = ", ".join(
        f"{'unknown' if row.executions is None else f'{row.executions:,}'} {row.op}"
        for row in sorted(mine, key=lambda row: row.op)
    )
    if axes is _ALL:
        ops = "unknown" if times is None else counted(times, "execution")
    return Statement(f"{most}{bytes_text(wire)} in {ops}", wire)


# --- Memory ---------------------------------------------------------------------------------------


def _memory(found: Snapshot, name: str) -> Statement:
    program = found.program(name)
    if program is None:
        return _none(found, name)
    one = memory.breakdown(found, program)
    total = None if one is None else one.total
    return Statement(bytes_text(total), total)


def _fits(
    snapshots: Sequence[Snapshot], baseline: int, chip: Chip | None, remarks: Sequence[str]
) -> Question:
    chips = [origin.chip(found, chip) for found in snapshots]
    statements = [_fit(found, one) for found, one in zip(snapshots, chips, strict=True)]
    named = {one.title for one in chips if one}
    title = f"Fits {named.pop()}" if len(named) == 1 else "Fits the chip"
    if any(one != chips[baseline] for one in chips if one and chips[baseline]):
        statements = [
            Statement(f"{said.text} ({one.title})" if one else said.text, said.value,
                      said.excluded or (f"memory of a {one.title}" if one and one != chips[baseline] else ""))
            for said, one in zip(statements, chips, strict=True)
        ]  # fmt: skip
    return question(MEMORY, title, statements, baseline, "less", remarks=remarks)


def _fit(found: Snapshot, chip: Chip | None) -> Statement:
    if chip is None:
        return Statement("no chip chosen", excluded="no chip was chosen")
    fit = memory.fit(found, chip)
    if fit.needed is None or fit.capacity is None:
        return Statement("unknown" if fit.fits is None else "yes" if fit.fits else "no")
    if fit.at_least:
        text = "no" if fit.fits is False else "unknown"
        return Statement(
            f"{text}: at least {bytes_text(fit.needed)} of {bytes_text(fit.capacity)}",
            excluded="only its train state and batch are known, as nothing was compiled",
        )
    words = f"needs {bytes_text(fit.needed)} of {bytes_text(fit.capacity)}"
    return Statement(f"{'yes' if fit.fits else 'no'}, {words}", fit.needed)


# --- Work and time --------------------------------------------------------------------------------


def _work_and_time(
    name: str,
    snapshots: Sequence[Snapshot],
    baseline: int,
    chip: Chip | None,
    remarks: Sequence[str],
) -> list[Question]:
    chips = [origin.chip(found, chip) for found in snapshots]
    models = [_model(found, name, one) for found, one in zip(snapshots, chips, strict=True)]
    against = chips[baseline]
    rows = {"modelled": [], "FLOPs per device": [], "repeated work": []}
    for found, one, model in zip(snapshots, chips, models, strict=True):
        program = found.program(name)
        if program is None:
            for statements in rows.values():
                statements.append(_none(found, name))
            continue
        rows["modelled"].append(_modelled(model, one, against))
        flops = program.flops_per_device
        text = "unknown" if flops is None else si_text(flops, "FLOP")
        rows["FLOPs per device"].append(Statement(text, flops))
        rows["repeated work"].append(_repeated(found, program))
    title = f"{name} modelled" + (f" on {chip.title}" if chip else "")
    made = [
        question(TIME, title, rows["modelled"], baseline, "less", _MODELLED, remarks),
        question(TIME, f"{name} measured", [_measured(found, name) for found in snapshots], baseline,
                 "less", APART),
    ]  # fmt: skip
    for what in ("FLOPs per device", "repeated work"):
        made.append(question(TIME, f"{name} {what}", rows[what], baseline, "less", remarks=remarks))
    return made


_MODELLED = (
    "Bounds from the chip's published figures: the longest part alone, and all of them in turn."
)


def _model(found: Snapshot, name: str, chip: Chip | None) -> Modelled | None:
    program = found.program(name)
    if program is None or chip is None or found.mesh is None:
        return None
    return modelled(program, found.mesh, chip)


def _modelled(model: Modelled | None, chip: Chip | None, against: Chip | None) -> Statement:
    if chip is None:
        return Statement("no chip chosen", excluded="no chip was chosen")
    if model is None:
        return Statement("unknown")
    if model.lower_seconds is None:
        return Statement(bound_text(model))
    text = bound_text(model)
    if against is not None and chip != against:
        return Statement(
            f"{text} ({chip.title})", model.lower_seconds, f"modelled on a {chip.title}"
        )
    return Statement(text, model.lower_seconds)


def _repeated(found: Snapshot, program: Program) -> Statement:
    work, ideal = program.work, program.ideal
    if (
        work is None
        or ideal is None
        or work.matmul is None
        or ideal.matmul is None
        or not found.mesh
    ):
        return Statement("unknown")
    done = sum(one.flops for one in work.matmul) * found.mesh.size
    if not done:
        return Statement("unknown")
    wasted = 1 - sum(one.flops for one in ideal.matmul) / done
    # Devices that do less than was written, because the compiler found a shorter way, repeat nothing.
    repeated = max(wasted, 0.0)
    return Statement("none" if repeated < 0.0005 else f"{repeated:.1%}", repeated)


def _measured(found: Snapshot, name: str) -> Statement:
    program = found.program(name)
    if program is None or program.seconds is None or not program.seconds.steps:
        return Statement("not measured", excluded=f"it is {origin.word(found)}: nothing was timed")
    spread = statistics(program.seconds.steps)
    assert spread is not None, "there are steps"
    emulated = "emulated: " if found.source.kind == "cpu" else ""
    text = (
        f"{emulated}median {seconds_text(spread.median)} ({seconds_text(spread.lower_quartile)} – "
        f"{seconds_text(spread.upper_quartile)}), n = {spread.count}"
    )
    return Statement(text, spread.median, OWN_RUN)
