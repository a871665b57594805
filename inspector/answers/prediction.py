"""The predicted step: its seconds and interval, its parts, and its inputs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import plotly.graph_objects as go

from inspector import assessment, figures
from inspector.answers import pipelines, unknown, verdict_bars
from inspector.answers.causes import of_origins
from inspector.answers.programs import once
from inspector.answers.section import (
    Block,
    Cell,
    Column,
    Folded,
    Notice,
    Picture,
    Section,
    Strong,
    Table,
    Text,
    columns,
    listing,
    more_text,
    text,
)
from inspector.hlo.op_name import PHASES, phase_text
from inspector.machines.hardware import Chip, si_text
from inspector.prediction.evidence import HOST_MOVES, leaves_out_host, program_for_chip
from inspector.prediction.predicted import CLAIMED, Iteration, Predicted, predicted_in
from inspector.prediction.simulation import Simulated, Span, executions, seconds_by_module
from inspector.prediction.step_parts import measured_spans
from inspector.records.assessment import BEFORE_COMPILE, LayoutFigures, Step
from inspector.records.snapshot import Mesh, Program, Snapshot
from inspector.sharding.traffic import traffic
from inspector.text.formatting import (
    and_text,
    bytes_text,
    capitalized,
    counted,
    mesh_axes_text,
    seconds_text,
    share_text,
)
from inspector.text.program_names import noun, title

HOW_COMPUTED, BARS = "How it is computed", "step_parts"
_VISIBLE_LATENCY = 0.1  # share of the step above which the latency of its collectives is named
_MOST_ROWS = 20  # operations in the table
_MOST_ARRAYS = 8  # of a collective
_MOST_CHARACTERS = 120  # of the name of a model operation; XLA joins the names of merged operations
_WORDS = {"compiler": "compiler's cycles", "roofline": "FLOPs and bytes", "wait": "wait"}


def section(snapshot: Snapshot, name: str, chip: Chip) -> Section:
    """Return the prediction for a program, with pictures and the longest operations."""
    program = snapshot.program(name)
    assert program is not None
    mesh = snapshot.mesh_of(program)
    assert mesh is not None
    predicted = predicted_in(snapshot, program, chip)
    inside = blocks(predicted, program_for_chip(snapshot, program, chip), mesh)
    several = f" of {title(name)}" if len(once(snapshot)) > 1 else ""
    return Section("prediction", f"Predicted step{several}", inside)


def needs(program: Program, chips: Sequence[str]) -> list[dict[str, str]]:
    """Return the inputs of a prediction that the Snapshot lacks: the option, and its meaning.

    Args:
      chips: names of the known chips.
    """
    rows = [{"option": "--chip NAME", "states": f"the chip: {', '.join(chips)}"}]
    for choice in program.open_choices:
        if choice.kind == "loop":
            states = "the trip count of this loop, which depends on data; without it, a lower bound"
            rows.append({"option": f"--trips {choice.label}=N", "states": states})
        else:
            states = "the share of executions that take this branch; without it, a bound"
            rows.append({"option": f"--branch {choice.label}=SHARE", "states": states})
    work = program.work
    for target in (
        () if work is None else sorted({*work.not_counted, *(calls.name for calls in work.kernels)})
    ):
        states = "the cost of this kernel, which the program's text lacks; without it, a lower bound"
        rows.append({"option": f"--kernel-cost {target}=FLOPS,BYTES", "states": states})
    return rows


def needed(program: Program, chips: Sequence[str]) -> Section:
    """Return a table of the inputs of a prediction that the Snapshot lacks."""
    table = Table.of(
        f"prediction-needs:{program.name}",
        needs(program, chips),
        {"Option:code": lambda row: row["option"], "States": lambda row: row["states"]},
        wrap=True,
    )
    said = text(f"To predict the time of {noun(program.name)}, state:")
    return Section("prediction-needs", "Predicted step", (said, table, *pipelines.blocks(program)))


def sentence(predicted: Predicted, devices: int) -> Text | Notice:
    """Return the predicted step with its interval in one sentence, or why it is unknown."""
    if predicted.seconds is None:
        reasons = and_text(predicted.unknown[:3]) or "nothing is known about it"
        return unknown.unknown(f"The predicted time of {noun(predicted.program)} is unknown: {reasons}.")
    how = "Predicted" if predicted.simulated else "Predicted before a compile,"
    if predicted.at_least:
        how = "A lower bound"
    machine = f"{counted(devices, 'device')} of {predicted.chip.title}"
    checked = "" if predicted.outside is None else ", outside of what was checked"
    return text(f"{how} on {machine}{checked}: ", Strong(prediction_text(predicted)), _unsure(predicted))


def _unsure(predicted: Predicted) -> str:
    """Return why the prediction was not checked, or the costs that it leaves out."""
    if predicted.outside is not None:
        return f". {capitalized(predicted.outside)}."
    if not predicted.at_least:
        return ""
    more = "".join(map(_iteration_text, predicted.each_iteration))
    return f", because {and_text(predicted.at_least[:3])}.{more}"


def _iteration_text(iteration: Iteration) -> str:
    takes = f"about {seconds_text(iteration.seconds)}"
    if iteration.low is not None and iteration.high is not None:
        takes += f", {seconds_text(iteration.low)} to {seconds_text(iteration.high)}"
    limit = "" if iteration.most is None else f" Its condition allows {counted(iteration.most, 'iteration')}."
    return (
        f" Each further iteration of {iteration.label} takes {takes}: state its trip count with "
        f"--trips {iteration.label}=N.{limit}"
    )


def blocks(
    predicted: Predicted, program: Program, mesh: Mesh, terms: tuple[Block, ...] = ()
) -> tuple[Block, ...]:
    """Return the blocks of the section.

    Args:
      program: the one that was predicted, which is not always the one that ran (`program_for_chip`).
      terms: further blocks about how it is computed.
    """
    simulated, devices = predicted.simulated, mesh.size
    step = assessment.step_of(predicted, program, mesh)
    if predicted.seconds is not None and simulated is None:
        return (
            sentence(predicted, devices),
            *([text(f"Assumed: {HOST_MOVES}.")] if leaves_out_host(program) else ()),
            *_latency(step, program),
            *_bars(step, predicted),
            *pipelines.blocks(program, predicted),
            *_folded(*_before_compile(predicted, program), *terms),
        )
    if predicted.seconds is None or simulated is None:
        return (sentence(predicted, devices), *pipelines.blocks(program), *_folded(*terms))
    return (
        sentence(predicted, devices),
        *_latency(step, program),
        *_bars(step, predicted),
        *pipelines.blocks(program, predicted),
        timeline_picture(simulated, program, measured=measured_spans(program)),
        modules_table(predicted, program),
        *_folded(basis(predicted, program), *terms, operations(predicted, program)),
    )


def _folded(*inside: Block) -> tuple[Folded, ...]:
    return (Folded(HOW_COMPUTED, inside),) if inside else ()


def _latency(step: Step | None, program: Program) -> tuple[Block, ...]:
    """Return a sentence for each set of mesh axes whose latency is a visible part of the step."""
    if step is None:
        return ()
    runs: Counter[tuple[str, bool]] = Counter()
    for row in traffic(program.collectives or (), networks_apart=True):
        runs["+".join(row.mesh_axes or ()), row.network is not None] += row.executions or 0
    of_parts = ((part, runs[part.axes or "", part.kind == "between"]) for part in step.parts)
    return tuple(
        text(f"Over {assessment.axes_text(part.axes)}, {assessment.latency_text(part, count)}")
        for part, count in of_parts
        if part.is_latency and part.seconds > _VISIBLE_LATENCY * step.seconds
    )


def _bars(step: Step | None, predicted: Predicted) -> tuple[Block, ...]:
    drawn = LayoutFigures(step=step, traffic_made=BEFORE_COMPILE if predicted.before_compile else "")
    return () if step is None or not step.parts else (verdict_bars.picture([drawn], BARS),)


def _before_compile(predicted: Predicted, program: Program) -> tuple[Block, ...]:
    inputs = [*_assumed(program), *([] if predicted.outside else [interval_text(predicted)])]
    return (listing(*inputs),) if inputs else ()


def _assumed(program: Program) -> tuple[str, ...]:
    """Return a sentence for each assumption of the program, such as a given or a measured trip count."""
    return tuple(f"Assumed: {clause}." for clause in program.assumptions)


def interval_text(predicted: Predicted) -> str:
    """Return the sentence that states the runs of the interval, or why it is unknown."""
    if predicted.interval is None:
        return f"{predicted.runs_text[0].upper()}{predicted.runs_text[1:]}."
    return f"The interval comes from measured over predicted seconds: {predicted.runs_text}."


def timeline_picture(
    simulated: Simulated,
    program: Program,
    window: tuple[float, float] | None = None,
    measured: Sequence[Span] = (),
) -> Picture:
    """Return the timeline. `window` is a period in seconds in detail, `measured` the spans of a profile."""

    def draw(width_px: int) -> go.Figure | None:
        return figures.timeline.timeline(simulated, program, window, measured, width_px=width_px)

    return Picture("timeline", "Timeline of the step", draw)


def prediction_text(predicted: Predicted) -> str:
    """Return `10.9 s, 9.8 s to 12.1 s with 80%`, or `at least 10.9 s`."""
    if predicted.seconds is None:
        return "unknown"
    if predicted.at_least:
        most = "" if predicted.most is None else f" and at most about {seconds_text(predicted.most)}"
        return f"at least {seconds_text(predicted.seconds)}{most}"
    if predicted.low is None or predicted.high is None:
        return f"{seconds_text(predicted.seconds)}, interval unknown"
    low, high = seconds_text(predicted.low), seconds_text(predicted.high)
    if predicted.outside is not None:
        return f"about {seconds_text(predicted.seconds)}, at least {low}"
    return f"{seconds_text(predicted.seconds)}, {low} to {high} with {CLAIMED:.0%}"


def operation_blocks(predicted: Predicted, program: Program, name: str) -> tuple[Block, ...]:
    """Return the known facts about one operation of the timeline; nothing for an unknown name.

    name: of a span, from `timeline.name_of`.
    """
    assert predicted.simulated is not None and program.schedule is not None
    name_of = figures.timeline.name_of
    spans = [span for span in predicted.simulated.spans if name_of(span) == name and span.basis != "loop"]
    if not spans:
        return ()
    span = spans[0]
    operation = program.schedule.operation(span.computation, span.position)
    times = executions(program).get(span.computation, 1)
    known = [
        f"{seconds_text(span.end - span.start)} on {span.resource}, {_WORDS.get(span.basis, span.basis)}"
        for span in spans
    ]
    items = [f"{counted(times, 'execution')} in a step: {'; '.join(known)}."]
    if operation.op_name:
        items.append(f"Model operation: {figures.labels.middle_cut(operation.op_name, 4 * _MOST_CHARACTERS)}")
    if operation.source:
        items.append(f"Source: {operation.source}")
    if operation.flops:
        items.append(f"{si_text(operation.flops, 'FLOP')} in matrix products of {operation.dtype}.")
    if operation.bytes is not None:
        items.append(f"{bytes_text(operation.bytes)} read and written.")
    blocks: list[Block] = []
    collectives = program.collectives or ()
    if operation.collective is not None and operation.collective < len(collectives):
        collective = collectives[operation.collective]
        items.append(
            f"{collective.op} over {mesh_axes_text(collective.mesh_axes)}: "
            f"{bytes_text(collective.wire_bytes_per_device)} leave each device."
        )
        if collective.arrays:
            more = len(collective.arrays) - _MOST_ARRAYS
            rest = f"; {more_text(more, 'array')}" if more > 0 else "."
            items.append(f"Arrays: {', '.join(collective.arrays[:_MOST_ARRAYS])}{rest}")
        if collective.origins:
            blocks += of_origins(collective.name, collective.origins)
    heading = text(Strong(operation.name), f", {operation.opcode}")
    return (heading, listing(*items), *blocks)


def modules_table(predicted: Predicted, program: Program) -> Table:
    """Return the seconds of the core by module and phase, the longest first; numbered layers together."""
    assert predicted.simulated is not None
    seconds = seconds_by_module(predicted.simulated, program)
    phases = [phase for phase in PHASES if any(phase in row for row in seconds.values())]
    rows = sorted(seconds.items(), key=lambda item: -sum(item[1].values()))[:_MOST_ROWS]
    whole = sum(sum(row.values()) for row in seconds.values()) or 1.0
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (
            module or "outside of modules",
            *(row.get(phase, 0.0) for phase in phases),
            sum(row.values()),
            share_text(sum(row.values()) / whole),
        )
        for module, row in rows
    )
    headings = columns(
        Column("Module", "code", "Path of the Flax module, with * for the numbers of layers"),
        *(
            Column("Other" if phase == "unknown" else phase_text(phase).capitalize(), "seconds")
            for phase in phases
        ),
        Column("Together", "seconds"),
        "Share",
    )
    return Table("step_modules", headings, cells)


def operations(predicted: Predicted, program: Program) -> Table:
    """Return the operations on which the core spends most time, over the whole step."""
    assert predicted.simulated is not None and program.schedule is not None
    times, whole = executions(program), predicted.simulated.totals.seconds
    rows = []
    for span in predicted.simulated.spans:
        if span.resource == "core" and span.basis != "loop":
            operation = program.schedule.operation(span.computation, span.position)
            count = times.get(span.computation, 1)
            rows.append((operation, span, count, count * (span.end - span.start)))
    rows.sort(key=lambda row: -row[3])
    return Table.of(
        "longest_operations",
        rows[:_MOST_ROWS],
        {
            "Operation": lambda row: row[0].name,
            "Seconds:seconds": lambda row: row[3],
            "Share": lambda row: share_text(row[3] / whole if whole else None),
            "Executions": lambda row: row[2],
            "Basis": lambda row: _WORDS.get(row[1].basis, row[1].basis),
            "Source": lambda row: row[0].source or "–",
            "Model operation": lambda row: figures.labels.middle_cut(row[0].op_name or "–", _MOST_CHARACTERS),
        },
    )


def basis(predicted: Predicted, program: Program) -> Block:
    """Return the terms of the prediction as a list."""
    assert predicted.simulated is not None and predicted.seconds is not None
    totals = predicted.simulated.totals
    # Both are sums of seconds, which differ by a rounding error.
    estimated = max(totals.compute - totals.by_roofline, 0.0)
    compute = totals.compute or 1.0
    return listing(
        f"The compiled schedule is executed in order on one device: {share_text(estimated / compute, 0)} of "
        "its compute time are the compiler's own cycles at the clock of the chip, the rest is the longer of "
        "FLOPs over peak and bytes over HBM bandwidth.",
        *_beside(predicted.simulated),
        *_two_estimates(predicted),
        *_assumed(program),
        interval_text(predicted),
    )


def _beside(simulated: Simulated) -> tuple[str, ...]:
    """Return which transfers count as hidden by the products, if there are any."""
    if not simulated.beside:
        return ()
    axes = and_text([mesh_axes_text(axes) for axes in simulated.beside])
    return (
        f"Transfers of activations over {axes} count as running beside the products, which fits the "
        "published runs with such axes best.",
    )


def _two_estimates(predicted: Predicted) -> tuple[str, ...]:
    """Return how the prediction follows from the schedule and the partitioned program, if both are known."""
    if predicted.partitioned_seconds is None or not predicted.schedule_seconds or not predicted.seconds:
        return ()
    return (
        f"The schedule alone takes {seconds_text(predicted.schedule_seconds)}, the partitioned program "
        f"{seconds_text(predicted.partitioned_seconds)}. The prediction is their geometric mean, and all "
        "times are scaled so that they add up to it.",
    )


def json_of(predicted: Predicted, program: Program) -> dict[str, object]:
    """Return the prediction for `predict --json`."""
    record: dict[str, object] = {
        "program": program.name,
        **({"pipelines": pipelines.plain(program, predicted)} if program.pipelines else {}),
        "chip": predicted.chip.name,
        "seconds": predicted.seconds,
        "low": predicted.low,
        "high": predicted.high,
        "schedule_seconds": predicted.schedule_seconds,
        "propagated_seconds": predicted.partitioned_seconds,
        "unknown": list(predicted.unknown),
        "at_least": list(predicted.at_least),
        "outside": predicted.outside,
        "least": predicted.least,
        "most": predicted.most,
        "iterations": dict(predicted.iterations),
        "each_iteration": [asdict(iteration) for iteration in predicted.each_iteration],
        "runs": predicted.interval.runs if predicted.interval else 0,
    }
    if predicted.simulated is None or predicted.seconds is None:
        return record
    totals = predicted.simulated.totals
    return record | {
        "compute": totals.compute,
        "matrix": totals.matrix,
        "memory": totals.memory,
        "copies": totals.copies,
        "exposed": dict(totals.exposed),
        "by_roofline": totals.by_roofline,
        "by_module": seconds_by_module(predicted.simulated, program),
    }
