"""The programs of a recorded run, and the phases of jobs in words."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from inspector.answers.section import (
    Block,
    Cell,
    Code,
    Column,
    Facts,
    Inline,
    LabelAndValue,
    Listing,
    Notice,
    Section,
    Table,
    text,
)
from inspector.records.program_run import SNAPSHOT, CompiledRecord, CompileReason, ProgramRun
from inspector.text.formatting import bytes_text, counted, seconds_text
from inspector.text.program_names import noun

_PROGRAMS = ("init", "train_step", "apply")
PHASE_NAMES = {
    "start": "Starting a worker",
    "topology": "Reading the topology",
    "build": "Building the model",
    "lower": "Lowering",
    "compile": "Compiling",
    "first run": "First run of",
    "steps": "Measuring",
    "timeit": "Timing loops of",
    "trace": "Profiling",
    "read": "Reading the live arrays",
}


def phase_label(names: dict[str, str], phase: str, figures: dict[str, Any]) -> str:
    """Return the phase and its program: `Compiling the train step`."""
    program = figures.get("program")
    label = names.get(phase, phase)
    return f"{label} {noun(program)}" if program else label


def share(phase: str, program: str | None, figures: dict[str, Any], compiles: bool) -> float:
    """Return the finished share. All phases count equally because their times are unknown."""
    order: list[tuple[str, str | None]] = [("start", None), ("topology", None), ("build", None)]
    order += [(stage, name) for name in _PROGRAMS for stage in ("lower", "compile")]
    if not compiles:
        order.append(("first run", "init"))
        order += [(stage, name) for name in ("train_step", "apply") for stage in ("first run", "steps")]
        order += [("timeit", "train_step"), ("timeit", "apply"), ("trace", "train_step")]
    order.append(("read", None))
    position = order.index((phase, program)) if (phase, program) in order else 0
    within = figures["done"] / figures["of"] if "done" in figures else 0.0
    return (position + within) / len(order)


_MOST_REASONS = 3
_MOST_QUESTIONS = 5


def section(run: ProgramRun) -> Section:
    """Return the table of compiled programs, with the facts of the run."""
    blocks: list[Block] = [state(run), facts(run)]
    if run.programs:
        blocks.append(table(run))
        if any(program.target_file for program in run.programs):
            blocks.append(
                text(
                    f"The figures of programs and arrays are those for {run.target}. Those of the emulated "
                    "devices are in ",
                    Code(SNAPSHOT),
                    " and in the file of each program without ",
                    Code("-target"),
                    ".",
                )
            )
        if run.questions:
            blocks.append(questions(run))
        blocks += [
            Notice(
                "warning", (Code(program.name), f" was not compiled for {run.target}: {program.target_error}")
            )
            for program in run.programs
            if program.target_error is not None
        ]
    else:
        blocks.append(Notice("unknown", ("No compiled function is recorded.",)))
    if run.operations and not run.programs:
        blocks.append(
            text(
                f"{counted(run.operations, 'operation')} of JAX ran outside of any jit. Compiling them took "
                f"{seconds_text(run.operation_seconds)}.",
                quiet=True,
            )
        )
    blocks += [Notice("warning", (f"The recorder failed: {problem}",)) for problem in run.problems[-1:]]
    return Section("program-run", "Compiled programs", tuple(blocks))


def next_command(run: ProgramRun, placed_on: int | None = None) -> Block | None:
    """Return the command that compares the results with those on one device; None if it does not apply.

    placed_on: number of devices of all its meshes, of which a program can use some; None if unknown.
    """
    devices = max((placed_on or 1, *(program.devices for program in run.programs)))
    if run.ended != "exit 0" or devices < 2 or run.target is not None:
        return None
    command = shlex.join(("sharding-inspector", "same", "--devices", str(devices), *run.command))
    return text("Next, check whether the results equal those on one device: ", Code(command))


def state(run: ProgramRun) -> Block:
    """Return how the program ended."""
    parts: list[Inline] = [Code(shlex.join(run.command))]
    if run.ended is None:
        parts.append(" is running.")
    else:
        parts.append(f" ended with {run.ended} after {seconds_text(run.seconds)}.")
    if run.error is not None:
        parts.append(f" {run.error.sentence}")
    return text(*parts)


def line(run: ProgramRun) -> str:
    """Return how the program ended and the amount it compiled, in one line."""
    ended = "running" if run.ended is None else f"ended with {run.ended} after {seconds_text(run.seconds)}"
    again = sum(bool(program.reasons) for program in run.programs)
    compiled = counted(len(run.programs), "compiled program") + (f", {again} of them again" if again else "")
    return " · ".join([ended, compiled, *run.not_recorded, *([run.error.sentence] if run.error else [])])


def questions(run: ProgramRun) -> Block:
    """Return which functions asked for the platform of a device. A target gives another answer."""
    places = list(map(_place, run.questions))
    parts: list[Inline] = ["The program asked for the platform or the kind of a device, and got cpu: "]
    for number, (function, place) in enumerate(places[:_MOST_QUESTIONS]):
        parts += [", "] if number else []
        parts += [Code(function), " at ", Code(place)]
    more = len(places) - _MOST_QUESTIONS
    parts.append(f" and {counted(more, 'more place')}. " if more > 0 else ". ")
    parts.append(f"On {run.target} it can compile other programs than those here.")
    return Notice("warning", tuple(parts))


def facts(run: ProgramRun) -> Facts:
    """Return the amount compiled, and the size of the live arrays."""
    compiling = sum(program.compile + (program.lower or 0) + (program.trace or 0) for program in run.programs)
    found: list[LabelAndValue] = [
        ("Compiled programs", f"{len(run.programs)}"),
        ("Time", seconds_text(compiling), "Seconds to trace, lower and compile all of them."),
        ("Compiled again", f"{sum(bool(program.reasons) for program in run.programs)}"),
    ]
    if run.target is not None:
        found.append(("Target", run.target))
    if run.live is not None:
        count = sum(run.live.names.values())
        found.append(("Live arrays", f"{count:,}"))
        found.append(("Bytes once", bytes_text(run.live.bytes)))
    return Facts.of(*found)


def table(run: ProgramRun) -> Table:
    """Return one row per compiled program."""
    columns: dict[str | Column, Callable[[CompiledRecord], Cell]] = {
        "Program": lambda record: Code(record.name),
        "Source": lambda record: _source(record),
        "At:seconds": lambda record: record.at,
        "Lower:seconds": lambda record: _lowering(record),
        "Compile:seconds": lambda record: record.compile,
        "Devices:count": lambda record: record.devices,
        "Reason": lambda record: _reason(record),
    }
    if run.target is not None:
        columns["File for the target"] = lambda record: Code(record.target_file or "–")
    return Table.of("compiled-programs", run.programs, columns, wrap=True)


def _source(record: CompiledRecord) -> tuple[Inline, ...]:
    """Return the line of the function. If it is of a library, the line that calls it comes first."""
    place = Code(_place(record.source)[1])
    if record.place == place.text:
        return (place,)
    return Code(record.place), ", through ", place


def _place(source: str) -> tuple[str, str]:
    """Return the function, and file and line: `train.py:12`."""
    function, _, place = source.partition(" at ")
    return function, (place or source).rpartition("/")[2]


def _reason(record: CompiledRecord) -> tuple[Inline, ...]:
    if not record.reasons:
        return ("first compile ahead of time" if record.ahead_of_time else "first compile",)
    groups: dict[tuple[str, str | None, str | None], list[CompileReason]] = {}
    for reason in record.reasons:
        groups.setdefault((reason.kind, reason.before, reason.after), []).append(reason)
    parts: list[Inline] = []
    for reasons in list(groups.values())[:_MOST_REASONS]:
        parts += ["; "] if parts else []
        parts += _parts(reasons[0], len(reasons) - 1)
    more = len(groups) - _MOST_REASONS
    return (*parts, f"; {counted(more, 'more difference')}") if more > 0 else tuple(parts)


def again(run: ProgramRun | None) -> tuple[Listing, ...]:
    """Return why functions were compiled again, one line for each; () if none was."""
    records = [record for record in ([] if run is None else run.programs) if record.reasons]
    items = tuple((Code(record.name), " compiled again: ", *_reason(record)) for record in records)
    return (Listing(items),) if items else ()


def _lowering(record: CompiledRecord) -> float | None:
    known = [seconds for seconds in (record.trace, record.lower) if seconds is not None]
    return sum(known) if known else None


def _parts(reason: CompileReason, others: int) -> tuple[Inline, ...]:
    """Return a reason in words. `others` arguments have the same difference."""
    argument = Code(reason.argument or "")
    also = f" and {counted(others, 'other argument')}" if others else ""
    match reason.kind:
        case "function":
            return ("the function is another Python object",)
        case "unknown":
            return ("unknown",)
        case "devices":
            return (f"other devices: {reason.before} → {reason.after}",)
        case "structure":
            return ("another static part of the pytree ", argument, also)
        case "argument" if reason.before is None:
            return ("new argument ", argument, f"{also}: {reason.after}")
        case "argument":
            return ("missing argument ", argument, f"{also}: {reason.before}")
        case "static":
            before = "the default" if reason.before is None else reason.before
            after = "the default" if reason.after is None else reason.after
            return ("static value of ", argument, f": {before} → {after}")
        case _:
            before, after = reason.before or "unused", reason.after or "unused"
            return (f"{reason.kind} of ", argument, f"{also}: {before} → {after}")
