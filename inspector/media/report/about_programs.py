"""What a report shows of the compiled programs of one Snapshot: collectives, memory, and time."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.compiled.device_traffic import device_traffic
from inspector.core import formatting
from inspector.core.collectives import traffic
from inspector.core.formatting import bytes_text, counted, times_text
from inspector.core.snapshot import Program, Snapshot
from inspector.figures import timings
from inspector.figures.collective_bars import axes_text, collective_bars
from inspector.figures.memory_bars import memory_bars
from inspector.figures.step_model import step_model
from inspector.figures.traffic_map import traffic_map
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.machines.prediction import memory
from inspector.machines.prediction.step_model import bound_text, modelled
from inspector.media.report.embedded import Figures
from inspector.media.report.markup import (
    Html,
    folded,
    joined,
    listing,
    paragraph,
    table,
    tag,
)

WIDE_PX, HALF_PX = 1040, 500
_MOST_DUPLICATED = 12

# What is told of a program that a step's figures are of, the first that is there.
_MAIN_PROGRAMS = ("train_step", "apply")


def chip_for(found: Snapshot, chosen: Chip | None) -> Chip | None:
    """The chip that it was compiled for, else the chosen one."""
    target = targets.compiled_for(found)
    return target.chip if target is not None else chosen


def main_program(found: Snapshot) -> Program | None:
    """The program whose figures stand for a step."""
    named = (found.program(name) for name in _MAIN_PROGRAMS)
    return next((one for one in named if one is not None), next(iter(found.programs), None))


def collectives(found: Snapshot, figures: Figures, about: Sequence[str]) -> Html:
    """Each program's collectives by mesh axes and op, and in figures those of a step."""
    if not found.programs:
        return paragraph("Nothing was compiled, so that collectives are unknown.")
    main = main_program(found)
    parts = []
    for program in sorted(found.programs, key=lambda one: one is not main):
        if program.collectives is None:
            parts.append(paragraph(f"The collectives of {program.name} have not been counted."))
            continue
        if not program.collectives:
            parts.append(paragraph(f"{program.name} has no collective."))
            continue
        rows = traffic(program.collectives)
        parts.append(tag("h4", f"Collectives of {program.name}"))
        if program is main:
            bars = collective_bars(rows, of=f"one run of {program.name}", width_px=HALF_PX)
            sent = (
                None
                if found.mesh is None
                else traffic_map(
                    device_traffic(program.collectives, found.mesh),
                    found.mesh,
                    of=f"one run of {program.name}",
                    width_px=HALF_PX,
                )
            )
            parts.append(
                tag(
                    "div",
                    figures.put(bars, "Bytes by mesh axes and op", about, "collectives"),
                    figures.put(sent, "Bytes from device to device", about, "traffic"),
                    class_="pair",
                )
            )
        parts.append(
            table(
                ("Mesh axes", "Op", "Instructions", "Executions", "Payload", "Wire per device"),
                [
                    (
                        axes_text(row.mesh_axes),
                        row.op + (", in a branch" if row.conditional else ""),
                        f"{row.instructions:,}",
                        "unknown" if row.executions is None else f"{row.executions:,}",
                        bytes_text(row.payload_bytes),
                        bytes_text(row.wire_bytes_per_device),
                    )
                    for row in rows
                ],
                numbers=(2, 3, 4, 5),
            )
        )
    return joined(parts)


def memory_of(found: Snapshot, figures: Figures, about: Sequence[str], chip: Chip | None) -> Html:
    """Whether it fits the chip, what each program needs, and what devices hold twice."""
    parts = []
    if chip is None:
        parts.append(
            paragraph("No chip was named, so that whether it fits is not said.", class_="quiet")
        )
    else:
        parts.append(paragraph(memory.fit(found, chip).sentence))
    capacity = (None, "") if chip is None else (memory.capacity_of(chip), chip.title)
    figure = memory_bars(memory.breakdowns(found), *capacity, width_px=WIDE_PX)
    parts.append(figures.put(figure, "Memory of each program by part", about, "memory"))
    doubled = memory.duplication_by_array(found)[:_MOST_DUPLICATED]
    if doubled:
        parts.append(tag("h4", "Held on several devices, the most wasteful first"))
        parts.append(
            table(
                ("Path", "Once", "On all devices", "Duplicated", "Copies"),
                [
                    (
                        one.name,
                        bytes_text(one.once),
                        bytes_text(one.everywhere),
                        bytes_text(one.duplicated),
                        "unknown" if one.factor is None else f"{times_text(one.factor)}×",
                    )
                    for one in doubled
                ],
                numbers=(1, 2, 3, 4),
            )
        )
    return joined(parts)


def time(found: Snapshot, figures: Figures, about: Sequence[str], chip: Chip | None) -> Html:
    """A step as modelled on the chip, and what was measured."""
    main = main_program(found)
    if main is None:
        return paragraph("Nothing was compiled, so that there is no program to time or to model.")
    parts = []
    if chip is None:
        parts.append(paragraph("No chip was named, so that no step is modelled.", class_="quiet"))
    elif found.mesh is not None:
        one = modelled(main, found.mesh, chip)
        figure = step_model(one, width_px=HALF_PX)
        parts += [
            paragraph(f"On {counted(one.devices, 'device')} of {chip.title}: {bound_text(one)}"),
            figures.put(figure, f"Modelled terms of {main.name}", about, "modelled-step"),
            folded(
                "Formulas and assumptions",
                table(
                    ("Term", "Seconds", "Formula", "Rests on"),
                    [
                        (
                            term.name,
                            formatting.seconds_text(term.seconds),
                            term.formula or "–",
                            term.basis or "what the compiled program says",
                        )
                        for term in one.terms
                    ],
                ),
                listing(one.assumptions),
            ),
        ]
    phases = timings.phases(found.programs, timings.where(found), width_px=HALF_PX)
    steps = timings.steps(found.programs, width_px=HALF_PX)
    if phases is not None or steps is not None:
        parts.append(
            tag(
                "div",
                figures.put(phases, "Compile times", about, "compile-times"),
                figures.put(steps, "Step times", about, "step-times"),
                class_="pair",
            )
        )
    return joined(parts)
