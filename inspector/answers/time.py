"""Time of a step: modelled on a chip, measured, and by kind of operation."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from inspector import figures
from inspector.answers import exposed, pipelines, prediction, unknown
from inspector.answers import measured as measured_section
from inspector.answers.prediction import HOW_COMPUTED
from inspector.answers.programs import BEFORE_COMPILE, heading, named, once
from inspector.answers.section import Block, Column, Folded, Picture, Section, Strong, Table, listing, text
from inspector.machines import out_of_memory, targets
from inspector.machines.hardware import Chip, si_text
from inspector.machines.targets import EMULATED, LOCAL, PROFILED, measured_where
from inspector.prediction.evidence import for_chip, program_for_chip
from inspector.prediction.predicted import predicted_in
from inspector.prediction.step_model import Intensity, Modelled, bound_text, modelled
from inspector.records.snapshot import Program, Snapshot, Timeit
from inspector.records.statistics import statistics, statistics_text
from inspector.sharding.meshes import devices_of, on_cpu
from inspector.text.formatting import counted, seconds_text, share_text
from inspector.text.program_names import noun, title

_SUBJECT = "step times are"


def section(snapshot: Snapshot, chip: Chip | None) -> Section:
    """Return the modelled step of each program and all measured times.

    Args:
      snapshot: as it was recorded, because the programs of `for_chip` did not run.
    """
    ran, snapshot = snapshot, for_chip(snapshot, chip)
    missing = unknown.no_programs(snapshot, _SUBJECT, partitioned=True)
    if missing is not None:
        return Section("time", "Time", (missing,))
    blocks: list[Block] = []
    no_mesh = unknown.no_mesh(snapshot)
    if chip is None:
        blocks += pipelines.sections(snapshot)
    elif no_mesh is not None:
        blocks += [no_mesh, *pipelines.sections(snapshot)]
    else:
        models = models_of(snapshot, chip)
        inside: list[Block] = []
        for program in once(snapshot):
            terms = how_computed(snapshot, models[program.name])
            parts: tuple[Block, ...] = (Folded(HOW_COMPUTED, terms),)
            if program.schedule is not None or program.before_compile:
                parts = _predicted(snapshot, program, chip, terms)
            inside.append(Section(f"modelled-{program.name}", heading(program, snapshot), parts))
        blocks.append(Section("modelled", f"Predicted on {chip.title}", tuple(inside)))
    machine = targets.chip_of(snapshot)
    profiled = measured_section.section(ran, machine)
    # What emulated devices took says nothing about a chip.
    first = (*blocks, *profiled) if machine is None else (*profiled, *blocks)
    why = exposed.section(ran, chip)
    return Section("time", "Time", (*first, *why, *measured(ran), *by_operation(ran)))


def _predicted(
    snapshot: Snapshot, program: Program, chip: Chip, terms: tuple[Block, ...]
) -> tuple[Block, ...]:
    mesh = snapshot.mesh_of(program)
    assert mesh is not None
    predicted = predicted_in(snapshot, program, chip)
    return prediction.blocks(predicted, program_for_chip(snapshot, program, chip), mesh, terms)


def models_of(snapshot: Snapshot, chip: Chip) -> dict[str, Modelled]:
    """Return the modelled step of each program by name. The Snapshot must have a mesh."""
    models = {}
    for program in snapshot.programs:
        mesh = snapshot.mesh_of(program)
        assert mesh is not None
        models[program.name] = modelled(program, mesh, chip)
    return models


def how_computed(snapshot: Snapshot, model: Modelled) -> tuple[Block, ...]:
    """Return the basis of a prediction: each term at the peaks of the chip, and the formulas."""
    if _failed(snapshot, model):
        reason = "the program does not fit into the memory of a device, so the compiler produced none"
        return (unknown.unknown(f"The step time of {noun(model.program)} is unknown: {reason}."),)
    machine = f"{counted(model.devices, 'device')} of {model.chip.title}"
    known = []
    if model.wasted:
        known.append(
            f"Repeated matrix products: {wasted_text(model)}. The program before partitioning does not have "
            "this share of the FLOPs of all devices: several devices do the same work, because arrays are "
            "replicated."
        )
    if model.utilisation is not None:
        known.append(
            f"Utilization: at most {share_text(model.utilisation)} of the peak FLOPs of all devices, in the "
            "shortest modelled time."
        )
    blocks: list[Block] = [text(f"At the peaks of {machine}: ", Strong(bound_text(model)), ".")]
    blocks += [listing(*known)] if known else []
    program = snapshot.program(model.program)
    if program is not None and program.before_compile:
        blocks.append(text(BEFORE_COMPILE, quiet=True))
    return (*blocks, *_formulas(model, program))


def measured(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return measured compile and step times; empty if there are none."""
    timed = [program for program in snapshot.programs if program.seconds is not None]
    stepped = any(program.seconds and program.seconds.steps for program in timed)
    staged = any(s and {s.lower, s.compile, s.first} != {None} for s in (one.seconds for one in timed))
    if not stepped and not staged:
        return ()
    where = measured_where(snapshot)
    if where == LOCAL:
        note = f"Measured on {devices_text(snapshot)}."
    elif where == PROFILED:
        note = f"Read from a profile of {devices_text(snapshot)}."
    elif where == EMULATED:
        note = f"Measured on {devices_of(snapshot) or 'devices'}."
    else:
        target = snapshot.source.target or "the target"
        note = f"Time that the compiler for {target} took. No step was run."
    if stepped and on_cpu(snapshot.mesh):
        note += (
            " CPU devices share the cores of one machine. The times compare layouts on that machine; they do "
            "not predict an accelerator."
        )
    times: tuple[Block, ...] = (_times_table(timed), *_timeit(timed))
    blocks: list[Block] = [text(note, quiet=True)]
    if stepped:
        steps = Picture(
            "timing_steps",
            "Step times",
            lambda width_px: figures.timings.steps(snapshot.programs, where, width_px=width_px),
        )
        blocks.append(steps)
        times = (Folded("All measured times", times),)
    blocks += [*modelled_and_measured(snapshot), *times]
    return (Section("measured", "Measured times", tuple(blocks)),)


def modelled_and_measured(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return bounds and prediction next to the measured steps of a run on a known chip; empty for others."""
    chip = targets.chip_of(snapshot)
    if snapshot.source.kind != "local" or chip is None or snapshot.mesh is None:
        return ()
    models = models_of(snapshot, chip)
    rows = [
        (models[program.name], measured, predicted_in(snapshot, program, chip))
        for program in snapshot.programs
        if program.seconds and (measured := statistics(program.seconds.steps))
    ]
    if not rows:
        return ()
    table = Table.of(
        "modelled_and_measured",
        rows,
        {
            "Program": lambda row: title(row[0].program),
            f"Modelled on {chip.title}": lambda row: bound_text(row[0]),
            Column(
                "Predicted",
                "text",
                "Predicted step, with the interval that is expected to contain 80% of measured steps",
            ): lambda row: prediction.prediction_text(row[2]),
            "Measured": lambda row: statistics_text(row[1]),
        },
    )
    return (table,)


def by_operation(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return the profiled time by kind of operation; empty if nothing was profiled."""
    profiled = [program for program in once(snapshot) if program.trace is not None]
    if not profiled or snapshot.mesh is None:
        return ()
    blocks = (block for program in profiled for block in _by_operation(program, snapshot))
    return (Section("operations", "Time by operation", tuple(blocks)),)


def _by_operation(program: Program, snapshot: Snapshot) -> Iterator[Block]:
    trace, mesh, where = program.trace, snapshot.mesh_of(program), measured_where(snapshot)
    assert trace is not None and mesh is not None
    yield Picture(
        f"operation_times:{program.name}",
        "Profiled time by kind of operation",
        lambda width_px: figures.timings.operation_times(trace, mesh.size, where, width_px=width_px),
    )
    steps = f"JAX's profiler recorded {counted(trace.steps, 'step')} of "
    yield text(steps, named(program.name), f", {where}.", quiet=True)


def devices_text(snapshot: Snapshot) -> str:
    """Return the number and kind of the devices: `8 devices (NVIDIA H200)`."""
    if snapshot.mesh is None:
        return "devices"
    kind = snapshot.mesh.device_kind or "of unknown kind"
    return devices_of(snapshot) + ("" if on_cpu(snapshot.mesh) else f" ({kind})")


def wasted_text(model: Modelled) -> str:
    """Return the share of repeated work."""
    if model.wasted is not None and model.wasted < -0.0005:
        # Of all devices' FLOPs, this share is missing; of those before partitioning, less.
        removed = 1 - 1 / (1 - model.wasted)
        return f"none: devices compute {removed:.1%} less than before partitioning"
    return share_text(None if model.wasted is None else abs(model.wasted))


def intensity_text(intensity: Intensity) -> str:
    """Return FLOPs per byte and the critical number: `12.0 FLOP/B, compute-bound from 164 FLOP/B`."""
    if intensity.flops_per_byte is None:
        return "unknown"
    words = si_text(intensity.flops_per_byte, "FLOP/B")
    if intensity.critical is None:
        return words
    return f"{words}, compute-bound from {si_text(intensity.critical, 'FLOP/B')}"


def _failed(snapshot: Snapshot, model: Modelled) -> bool:
    refused = {finding.program for finding in out_of_memory.findings(snapshot)}
    return model.program in refused and model.lower_seconds is None


def flops_counts(model: Modelled, program: Program | None) -> dict[str, float]:
    """Return each known number of FLOPs by the counted operations."""
    counts = {
        "in matrix products and convolutions of one device: the compute term": model.flops,
        "in all operations of one device, counted as in XLA's cost analysis": (
            None if program is None else program.flops_per_device
        ),
        "in matrix products and convolutions of all devices, before partitioning": model.ideal_flops,
    }
    return {what: count for what, count in counts.items() if count is not None}


def _formulas(model: Modelled, program: Program | None) -> tuple[Block, ...]:
    """Return the formula of each term, the FLOPs, and the assumptions."""
    is_planned = program is not None and program.before_compile
    stage = program.stage if program is not None and is_planned else "compiled"
    counts = flops_counts(model, program)
    flops = [f"{si_text(count, 'FLOP')} {what}" for what, count in counts.items()]
    terms = Table.of(
        f"terms:{model.program}",
        model.terms,
        {
            "Term": lambda term: term.name,
            "Time:seconds": lambda term: term.seconds,
            "Formula": lambda term: term.formula or "–",
            "Based on": lambda term: term.basis or f"the {stage} program",
        },
        wrap=True,
    )
    overlap = (
        "At its peaks, a chip takes at least the longest term, if all overlap. The prediction is longer, "
        "because no program reaches the peaks."
    )
    combined = [term for term in model.terms if term.combined not in (0.0, term.seconds)]
    if combined:
        overlap += (
            " The lower bound counts the collectives of one operation over the same mesh axes as one, "
            "because compilers combine or overlap them."
        )
    if any(term.anywhere is not None for term in model.terms):
        overlap += " It counts one hop and all links of a chip: the places of the devices are assumed."
    intensities = [f"{intensity.name}: {intensity_text(intensity)}" for intensity in model.intensities]
    return (terms, listing(overlap, *flops, *intensities, *model.assumptions))


def _times_table(programs: Sequence[Program]) -> Table:
    timed = [(title(program.name), seconds) for program in programs if (seconds := program.seconds)]
    return Table.of(
        "measured_times",
        timed,
        {
            "Program": lambda timed: timed[0],
            "Lower": lambda timed: _measured(timed[1].lower),
            "Compile": lambda timed: _measured(timed[1].compile),
            "First run": lambda timed: _measured(timed[1].first),
            "Steps": lambda timed: _measured(statistics(timed[1].steps), statistics_text),
        },
    )


def _measured(value: Any, text: Callable[[Any], str] = seconds_text) -> str:
    return "not measured" if value is None else text(value)


def _timeit(programs: Sequence[Program]) -> list[Block]:
    return [
        text(
            named(program.name, begins=True),
            " by %%timeit: ",
            Strong(_timeit_text(program.seconds.timeit)),
        )
        for program in programs
        if program.seconds is not None and program.seconds.timeit is not None
    ]


def _timeit_text(measured: Timeit) -> str:
    """Return mean and deviation as IPython's `%%timeit` prints them."""
    mean, deviation = map(seconds_text, (measured.mean, measured.deviation))
    runs = counted(measured.runs, "run")
    loops = f"{counted(measured.loops, 'loop')} each"
    return f"{mean} ± {deviation} per loop (mean ± std. dev. of {runs}, {loops})"
