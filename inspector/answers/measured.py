"""A measured step next to the prediction for it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from inspector.answers import verdict_bars
from inspector.answers.programs import named, once
from inspector.answers.section import Block, Cell, Column, Folded, Section, Strong, Table, listing, text
from inspector.assessment.measured import MeasuredPart, MeasuredStep, collective_text, measured_step
from inspector.machines.hardware import Chip, si_text
from inspector.records.assessment import LayoutFigures
from inspector.records.snapshot import Program, Snapshot
from inspector.sharding.meshes import on_cpu
from inspector.sharding.traffic import lines_text
from inspector.text.formatting import bytes_text, counted, seconds_text, share_text

_MOST_ROWS = 20  # operations and collectives in a table
UNKNOWN = "unknown"


def section(snapshot: Snapshot, chip: Chip | None, programs: Sequence[Program] = ()) -> tuple[Section, ...]:
    """Return the measured step of each program that was profiled; empty without any.

    Args:
      chip: the chip of the Snapshot, on which it was measured. None if it is unknown.
      programs: empty for all.
    """
    steps = [measured_step(snapshot, program, chip) for program in programs or once(snapshot)]
    inside = [block for step in steps if step is not None for block in blocks(step)]
    heading = "Measured step" if chip is None else "Measured and predicted step"
    return (Section("measured-step", heading, tuple(inside)),) if inside else ()


def said(measured: MeasuredStep) -> tuple[Block, ...]:
    """Return the measured step, its spread, where it differs from the prediction, and who was late."""
    trace = measured.program.trace
    assert trace is not None
    device = "emulated device" if on_cpu(measured.mesh) else "device"
    runs = f"{counted(trace.steps, 'run')} on {counted(len(trace.devices), device)}"
    seconds = Strong(measured.measured.text)
    known = (measured.sentence, *measured.late)
    return (
        text("Profiled: ", named(measured.program.name), f", {runs}: ", seconds, "."),
        *(text(sentence) for sentence in known if sentence),
    )


def blocks(measured: MeasuredStep) -> tuple[Block, ...]:
    """Return where both differ most, the bars of both, and the machine's rates."""
    trace = measured.program.trace
    assert trace is not None
    pause = [] if trace.pause is None else [f"Between two runs: {seconds_text(trace.pause)}."]
    not_predicted = _not_predicted(measured)
    layouts = [LayoutFigures("Measured" if measured.predicted else "", measured.measured)]
    if measured.predicted is not None:
        layouts.insert(0, LayoutFigures("Predicted", measured.predicted))
    key = f"measured-bars:{measured.program.name}"
    return (
        *said(measured),
        *([text(not_predicted)] if not_predicted else []),
        replace(verdict_bars.picture(layouts, key), in_text=(_parts(measured),)),
        listing(*pause, *_achieved(measured)),
        *([Folded("Collectives, measured", (_collectives(measured),))] if measured.collectives else []),
        Folded("Longest operations, measured", (_operations(measured),)),
    )


def _not_predicted(measured: MeasuredStep) -> str:
    if measured.predicted is not None:
        return ""
    if measured.prediction is not None:
        reasons = "; ".join(measured.prediction.unknown) or "nothing is known about the step"
        return f"It is not predicted: {reasons}."
    if on_cpu(measured.mesh):
        return "It was measured on CPU devices, and predictions are for TPUs and GPUs, so none is next to it."
    if measured.chip is not None:
        return f"It ran on {measured.chip.title}. It is not predicted, because the profile names no mesh."
    return (
        "The chip that it was measured on is unknown, so no prediction is next to it: import the profile "
        "with --program and a Snapshot of run, which has the kind of the devices."
    )


def _parts(measured: MeasuredStep) -> Table:
    predicted = measured.predicted is not None
    columns: dict[str | Column, Callable[[MeasuredPart], Cell]] = {
        "Part": lambda row: f"{row.name}, with the hidden part" if row.whole else row.name,
        **({"Predicted:seconds": lambda row: row.predicted} if predicted else {}),
        "Measured:seconds": lambda row: row.measured,
    }
    return Table.of(f"measured-parts:{measured.program.name}", measured.rows, columns)


def _achieved(measured: MeasuredStep) -> list[str]:
    lines = []
    for achieved in measured.achieved:
        line = f"Achieved in {achieved.name}: {si_text(achieved.per_second, achieved.unit)} on a device"
        if achieved.share is not None:
            line += f", {share_text(achieved.share)} of the peak of the chip"
        if achieved.busy_share is not None:
            line += f"; while matrix products run, {share_text(achieved.busy_share)}"
        lines.append(f"{line}.")
    return lines


def _collectives(measured: MeasuredStep) -> Table:
    chip = measured.chip is not None
    return Table.of(
        f"measured-collectives:{measured.program.name}",
        measured.collectives[:_MOST_ROWS],
        {
            "Collective": lambda own: collective_text(own.collective),
            "Name:code": lambda own: own.collective.name,
            "Source:code": lambda own: lines_text(own.collective, "–"),
            "Executions": lambda own: f"{own.executions:g}",
            "Seconds:seconds": lambda own: own.seconds,
            Column("Exposed", "seconds", "Seconds in which the device does nothing else"): lambda own: (
                own.exposed
            ),
            "Sent": lambda own: bytes_text(None if own.sent is None else round(own.sent)),
            "Rate": lambda own: (
                UNKNOWN if own.bytes_per_second is None else si_text(own.bytes_per_second, "B/s")
            ),
            **({"Share of its links": lambda own: share_text(own.link_share)} if chip else {}),
        },
    )


def _operations(measured: MeasuredStep) -> Table:
    predicted = any(operation.predicted is not None for operation in measured.operations)
    return Table.of(
        f"measured-operations:{measured.program.name}",
        measured.operations[:_MOST_ROWS],
        {
            "Operation:code": lambda own: own.name,
            "Kind": lambda own: own.kind,
            "Executions": lambda own: f"{own.executions:g}",
            "Measured:seconds": lambda own: own.seconds,
            **({"Predicted:seconds": lambda own: own.predicted} if predicted else {}),
            "Source:code": lambda own: own.source or "–",
        },
    )


def json_of(measured: MeasuredStep) -> dict[str, object]:
    """Return the measured step for `predict --json`."""
    return {
        "seconds": measured.measured.seconds,
        "low": measured.measured.low,
        "high": measured.measured.high,
        "sentence": measured.sentence or None,
        "late": list(measured.late),
        "parts": [
            {"name": row.name, "whole": row.whole, "predicted": row.predicted, "measured": row.measured}
            for row in measured.rows
        ],
        "achieved": [
            {"name": own.name, "per_second": own.per_second, "share": own.share} for own in measured.achieved
        ],
        "collectives": [
            {
                "name": own.collective.name,
                "op": own.collective.op,
                "axes": list(own.collective.axis_names),
                "seconds": own.seconds,
                "exposed": own.exposed,
                "link_share": own.link_share,
            }
            for own in measured.collectives
        ],
    }
