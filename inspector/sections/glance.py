"""Layouts at a glance: memory, time and traffic in one picture, and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from inspector.compare import difference
from inspector.compare.glance import Amount, Measure, measures
from inspector.compare.splits import without_idle_axes
from inspector.compare.verdict import compared
from inspector.core.program_names import noun
from inspector.core.snapshot import Array, Snapshot
from inspector.figures.glance import HEADINGS, Column, mark
from inspector.figures.glance import glance as draw
from inspector.machines.hardware import Chip
from inspector.machines.prediction.predicted import CLAIMED
from inspector.sections import comparison, provenance
from inspector.sections.section import (
    Block,
    Cell,
    Folded,
    Inline,
    Mark,
    Picture,
    Section,
    Strong,
    Table,
    columns,
)

_MAX_MAPS = 2
Named = Sequence[tuple[str, Snapshot]]


@dataclass(frozen=True)
class Glance:
    """The measures of some layouts, and the paths of the arrays that differ most.

    columns: the name and the mesh of each layout, and these arrays.
    """

    measures: tuple[Measure, ...]
    columns: tuple[Column, ...]
    paths: tuple[str, ...]
    baseline: int


def of(named: Named, chip: Chip | None, baseline: int = 0) -> Glance:
    """Return the measures of these layouts.

    Args:
      chip: the chip for memory and time of Snapshots without one.
      baseline: the position of the layout that the others are compared with.
    """
    snapshots = [snapshot for _, snapshot in named]
    paths: list[str] = []
    if len(named) > 1:
        paths = comparison.differing(named, difference.spec_rows(snapshots), _MAX_MAPS)
    return Glance(
        measures(compared(named, chip), baseline),
        tuple(
            Column(
                name,
                found.mesh,
                tuple(_array(found, path) for path in paths),
                found.other_meshes,
            )
            for name, found in named
        ),
        tuple(paths),
        baseline,
    )


def of_report(named: Named, chip: Chip | None) -> tuple[Block, ...]:
    """Return the picture, which has its provenance if saved, its sums as a table, and the parts folded."""
    found = of(named, chip)
    return _picture(found, provenance.lines(named)), _table(found, parts=False), _numbers(found)


def section(glance: Glance) -> Section:
    """Return the picture, and its numbers as a table that opens on request."""
    heading = "Layouts at a glance" if len(glance.columns) > 1 else "Layout at a glance"
    return Section("glance", heading, (_picture(glance), _numbers(glance)))


def _picture(glance: Glance, stamp: tuple[str, ...] = ()) -> Picture:
    said = " ".join(statement(glance, measure) for measure in glance.measures)
    return Picture("glance", said, lambda width_px: figure(glance, width_px), stamp)


def figure(glance: Glance, width_px: int) -> go.Figure:
    """Return the picture."""
    columns, baseline = glance.columns, glance.baseline
    return draw(glance.measures, columns, baseline, glance.paths, width_px=width_px)


def statement(glance: Glance, measure: Measure) -> str:
    """Return one sentence with the amount of each layout: `Time of a step: FSDP 1.2 s, baseline; …`."""
    each = []
    for column, amount, answer in zip(glance.columns, measure.amounts, measure.answers, strict=True):
        said = [f"{column.name} {_amount_text(measure, amount.value, amount.at_least)}"]
        if amount.fits is False:
            said.append("does not fit")
        if len(glance.columns) > 1:
            compared = " ".join(one for one in (answer.change, answer.verdict) if one)
            said += [compared] if answer.verdict != "unknown" else []
        each.append(", ".join(said))
    return f"{HEADINGS[measure.kind]}: {'; '.join(each)}."


def _amount_text(measure: Measure, value: float | None, at_least: bool) -> str:
    return f"{'at least ' if at_least else ''}{measure.text(value)}"


def _numbers(glance: Glance) -> Folded:
    return Folded("Numbers of the picture", (_table(glance),))


def _table(glance: Glance, parts: bool = True) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for measure in glance.measures:
        totals = tuple(_total(measure, place) for place in range(len(glance.columns)))
        of_step = measure.program in (None, "train_step")
        program = "" if of_step else f", {noun(measure.program or '')}"
        rows.append((Strong(f"{HEADINGS[measure.kind]}{program}"), *totals))
        for name in measure.part_names if parts else ():
            rows.append((name, *(_part(measure, place, name) for place in range(len(totals)))))
        if any(amount.low is not None for amount in measure.amounts):
            rows.append(
                (
                    f"{CLAIMED:.0%} interval",
                    *(_interval(measure, amount) for amount in measure.amounts),
                )
            )
        stages = [amount.stage for amount in measure.amounts]
        label = "based on" if any(stages) else "reason"
        if any(stages) and not all(stages):
            label = "based on, or the reason"
        rows.append((label, *(amount.stage or amount.unknown for amount in measure.amounts)))
    headings = [
        f"{column.name} (baseline)" if place == glance.baseline and len(glance.columns) > 1 else column.name
        for place, column in enumerate(glance.columns)
    ]
    key = "glance_numbers" if parts else "glance_sums"
    return Table(key, columns("Amount", *headings), tuple(rows), wrap=True)


def _total(measure: Measure, place: int) -> Cell:
    one, answer = measure.amounts[place], measure.answers[place]
    parts: list[Inline] = [Strong(_amount_text(measure, one.value, one.at_least))]
    if answer.verdict not in ("baseline", "unknown"):
        parts += [" ", Mark(mark(answer), comparison.KINDS.get(answer.verdict, "unknown"))]
    beside = [answer.remark] if answer.remark and answer.verdict != "unknown" else []
    if one.limit is not None:
        fits = {True: "fits", False: "does not fit", None: "unknown whether it fits"}[one.fits]
        beside.append(f"{fits} into {measure.text(one.limit)}")
    if one.value is None and one.unknown and one.parts:
        beside.append(one.unknown)
    return (*parts, *([f" ({'; '.join(beside)})"] if beside else []))


def _part(measure: Measure, place: int, name: str) -> Cell:
    one = measure.amounts[place]
    amount = next((part.amount for part in one.parts if part.name == name), None)
    if amount is None:
        return "–" if one.value is not None else "unknown"
    return measure.text(amount)


def _interval(measure: Measure, amount: Amount) -> str:
    if amount.low is None or amount.high is None:
        return "unknown"
    return f"{measure.text(amount.low)} to {measure.text(amount.high)}"


def _array(snapshot: Snapshot, path: str) -> Array | None:
    array = next((one for one in snapshot.arrays if one.path == path), None)
    return None if array is None else without_idle_axes(array, snapshot.mesh_of(array))
