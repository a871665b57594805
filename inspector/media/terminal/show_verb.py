"""`show`: a Snapshot as a text summary for a terminal."""

from __future__ import annotations

import argparse
import sys

from inspector.core import snapshot
from inspector.core.collectives import traffic
from inspector.core.formatting import (
    bytes_text,
    counted,
    mesh_axes_text,
    mesh_text,
    seconds_text,
    times_text,
)
from inspector.core.snapshot import Program, Snapshot
from inspector.core.statistics import statistics, statistics_text
from inspector.core.totals import state_totals
from inspector.figures.text_tree import text_tree
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.machines.prediction.step_model import modelled, text

NAME = "show"
HELP = "summarise a Snapshot: source, mesh, bytes, arrays, programs, findings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshot", metavar="SNAPSHOT.json")
    parser.add_argument(
        "--chip",
        metavar="NAME",
        help=f"model time and memory on this chip: {', '.join(hardware.CHIPS)}",
    )


def run(options: argparse.Namespace) -> None:
    """Print the summary."""
    chip = None if options.chip is None else hardware.chip(options.chip)
    sys.stdout.write(summary(snapshot.read(options.snapshot), chip))


def summary(found: Snapshot, chip: Chip | None = None) -> str:
    """The whole summary, with each program modelled on `chip`; every line ends with a line end."""
    parts = [_heading(found)]
    if found.arrays:
        parts.append(text_tree(found.arrays))
    if found.programs:
        parts.append("".join(f"{_program(program, found)}\n" for program in found.programs))
        parts += [_collectives(program) for program in found.programs if program.collectives]
    if chip is not None:
        parts += _on_chip(found, chip)
    if found.findings:
        parts.append("".join(f"{f.level}: {f.message}\n" for f in found.findings))
    return "\n".join(parts)


def _heading(found: Snapshot) -> str:
    source = found.source
    versions = ", ".join(f"{name} {version}" for name, version in source.versions.items())
    lines = [f"source    {source.kind}, {source.created}" + (f", {versions}" if versions else "")]
    if found.layout is not None:
        lines.append(f"layout    {_layout(found.layout)}")
    if found.mesh is not None:
        axes = mesh_text(found.mesh)
        several = f" in {source.processes} processes" if source.processes > 1 else ""
        lines.append(f"mesh      {axes}, {counted(found.mesh.size, 'device')}{several}")
    totals = state_totals(found)
    lines.append(
        f"state     {counted(totals.arrays, 'array')}, {bytes_text(totals.bytes)} once, "
        f"{bytes_text(totals.per_device)} per device, {times_text(totals.copies)} copies"
    )
    return "\n".join(lines) + "\n"


def _layout(layout: dict) -> str:
    """The layout's own keys as they stand; a Snapshot may come from elsewhere, so nothing is assumed."""
    words = []
    for name, value in layout.items():
        if name == "rules" and isinstance(value, list):
            value = ",".join(
                f"{rule[0]}={'+'.join(rule[1])}" if _is_rule(rule) else str(rule) for rule in value
            )
        elif isinstance(value, dict):
            value = " ".join(f"{key}={part}" for key, part in value.items())
        elif isinstance(value, list):
            value = ",".join(map(str, value))
        words.append(f"{name} {value}")
    return "; ".join(words)


def _is_rule(rule: object) -> bool:
    return (
        isinstance(rule, list)
        and len(rule) == 2
        and isinstance(rule[0], str)
        and isinstance(rule[1], list)
        and all(isinstance(axis, str) for axis in rule[1])
    )


def _program(program: Program, found: Snapshot) -> str:
    words = []
    if program.seconds is not None:
        seconds = program.seconds
        for name, value in (
            ("lower", seconds.lower),
            ("compile", seconds.compile),
            ("first run", seconds.first),
        ):
            if value is not None:
                words.append(f"{name} {seconds_text(value)}")
        spread = statistics(seconds.steps)
        if spread is not None:
            words.append(statistics_text(spread))
        if found.source.kind == "cpu" and words:
            words.append("emulated on one machine")
    if program.memory is not None and program.memory.arguments is not None:
        words.append(f"arguments {bytes_text(program.memory.arguments)} per device")
    return f"{program.name:<12}{', '.join(words)}"


def _on_chip(found: Snapshot, chip: Chip) -> list[str]:
    """Whether it fits the chip's memory, and the modelled step of each program."""
    if found.mesh is None:
        return ["This Snapshot has no mesh, so that nothing can be modelled on a chip.\n"]
    models = [modelled(program, found.mesh, chip) for program in found.programs]
    return [f"{memory.fit(found, chip).sentence}\n", *(f"{text(one)}\n" for one in models)]


def _collectives(program: Program) -> str:
    """Collectives by mesh axes and op: how often one run executes them, and the bytes of all of these."""
    rows = [(f"collectives of {program.name}", "op", "executions", "payload", "wire per device")]
    for row in traffic(program.collectives or ()):
        axes = mesh_axes_text(row.mesh_axes)
        times = "unknown" if row.executions is None else f"{row.executions:,}"
        rows.append(
            (
                f"  {axes}",
                row.op,
                f"up to {times}" if row.conditional and row.executions is not None else times,
                bytes_text(row.payload_bytes),
                bytes_text(row.wire_bytes_per_device),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        "  ".join(
            # Words begin together, numbers end together.
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + "\n"
        for row in rows
    )
