"""Layouts at a glance: memory, time and traffic in one picture, or as bars made of text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from inspector.answers import comparison, subject
from inspector.answers.section import (
    Block,
    Cell,
    Code,
    Inline,
    Mark,
    Picture,
    Section,
    Strong,
    Table,
    columns,
    text,
)
from inspector.assessment import memory_words
from inspector.compare.amounts import Amount
from inspector.compare.compared import compared
from inspector.compare.question import mark
from inspector.compare.questions import StepMeasure, measures
from inspector.figures.verdict_bars import verdict_bars
from inspector.machines.hardware import Chip
from inspector.records.assessment import Assessment, LayoutFigures
from inspector.records.snapshot import Snapshot

_BAR = 24  # signs of the longest bar
_SIGNS, _REST = "█▓▒", "░"
_LEAST_SHARE = 0.25  # of the memory of the chip, from which bars show its end
_UNITS = {"memory": 1.0, "traffic": 1.0, "time": 1e9, "flops": 1.0}
Named = Sequence[tuple[str, Snapshot]]


@dataclass(frozen=True)
class Glance:
    """The measures of some layouts, and their assessments by name."""

    measures: tuple[StepMeasure, ...]
    layouts: tuple[tuple[str, Assessment], ...]
    baseline: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.layouts)


def of(named: Named, chip: Chip | None, baseline: int = 0) -> Glance:
    """Return the measures of these layouts.

    Args:
      chip: the chip for memory and time of Snapshots without one.
      baseline: the position of the layout that the others are compared with.
    """
    every = compared(named, chip)
    drawn = [
        _as_drawn(measure, [of_layout.assessment for of_layout in every])
        if measure.kind == "memory"
        else measure
        for measure in measures(every, baseline)
        if measure.kind != "flops"
    ]
    return Glance(
        tuple(
            measure
            for measure in drawn
            if measure.kind != "time" or any(amount.stage for amount in measure.amounts)
        ),
        tuple((name, one.assessment) for (name, _), one in zip(named, every, strict=True)),
        baseline,
    )


def _as_drawn(memory: StepMeasure, every: Sequence[Assessment]) -> StepMeasure:
    """Return the memory with the parts that the figure has. The table of answers has those by group."""
    amounts = [
        replace(amount, parts={memory_words(kind, need)[0]: size for kind, size in need.parts.items()})
        if (need := assessment.memory) is not None and amount.parts
        else amount
        for amount, assessment in zip(memory.amounts, every, strict=True)
    ]
    return replace(memory, amounts=tuple(amounts))


def of_report(named: Named, chip: Chip | None) -> tuple[Block, ...]:
    """Return the picture, which has its provenance if saved."""
    return (_picture(of(named, chip), subject.source_lines(named)),)


def section(glance: Glance) -> Section:
    """Return the picture."""
    heading = "Layouts at a glance" if len(glance.layouts) > 1 else "Layout at a glance"
    return Section("glance", heading, (_picture(glance),))


def _picture(glance: Glance, stamp: tuple[str, ...] = ()) -> Picture:
    said = " ".join(statement(glance, measure) for measure in glance.measures)
    return Picture("glance", said, lambda width_px: figure(glance, width_px), stamp, _in_text(glance))


def figure(glance: Glance, width_px: int) -> go.Figure | None:
    """Return the picture; None if nothing is known."""
    several = len(glance.layouts) > 1
    layouts = []
    for place, (name, assessment) in enumerate(glance.layouts):
        marks, reasons = {}, {}
        for measure in glance.measures:
            answer = measure.answers[place]
            marks[measure.title] = (mark(answer), mark(answer, words=False)) if several else ("", "")
            reasons[measure.title] = measure.amounts[place].unknown
        kept = assessment.rejected is None
        layouts.append(
            LayoutFigures(
                f"{name} (baseline)" if several and place == glance.baseline else name * several,
                assessment.step if kept else None,
                assessment.memory if kept else None,
                assessment.traffic if kept else None,
                marks,
                reasons,
            )
        )
    return verdict_bars(layouts, width_px=width_px)


def statement(glance: Glance, measure: StepMeasure) -> str:
    """Return one sentence with the amount of each layout: `Step: FSDP 1.2 s, predicted; …`."""
    each = []
    for name, amount, answer in zip(glance.names, measure.amounts, measure.answers, strict=True):
        said = [f"{name} {amount.text}"]
        if len(glance.layouts) > 1 and answer.verdict != "unknown":
            said.append(mark(answer) or answer.verdict)
        each.append(", ".join(said))
    return f"{measure.title}: {'; '.join(each)}."


def _in_text(glance: Glance) -> tuple[Block, ...]:
    """Return the picture as a table with bars: a row for each layout, so that bars are below each other."""
    fills = [_fills(measure) for measure in glance.measures]
    rows: list[tuple[Cell, ...]] = []
    for place, name in enumerate(glance.names):
        baseline = len(glance.layouts) > 1 and place == glance.baseline
        cells = [_cell(measure, place, fill) for measure, fill in zip(glance.measures, fills, strict=True)]
        rows.append((Strong(f"{name} (baseline)" if baseline else name), *cells))
    titles = [measure.title for measure in glance.measures]
    legends = []
    for measure, fill in zip(glance.measures, fills, strict=True):
        named = [f"{sign} {name}" for name, sign in fill.items()]
        drawn = any(_REST in _bar(measure, amount, fill) for amount in measure.amounts)
        named += [f"{_REST} smaller parts"] * drawn
        parts = ", ".join(named) * (len(measure.part_names) > 1)
        stages = dict.fromkeys(amount.stage for amount in measure.amounts if amount.stage)
        said = ": ".join(filter(None, (f"{measure.title}, {' or '.join(stages)}" * bool(stages), parts)))
        legends += [f"{said}."] if said else []
    table = Table("glance", columns("Layout", *titles), tuple(rows), wrap=True)
    return (table, text(" ".join(legends), quiet=True))


def _cell(measure: StepMeasure, place: int, fills: dict[str, str]) -> Cell:
    amount, answer = measure.amounts[place], measure.answers[place]
    parts: list[Inline] = []
    if bar := _bar(measure, amount, fills):
        parts += [Code(bar), " "]
    parts.append(Strong(amount.text))
    if said := mark(answer):
        parts += [" ", Mark(said, comparison.KINDS.get(answer.verdict, "unknown"))]
    return tuple(parts)


def _fills(measure: StepMeasure) -> dict[str, str]:
    """Return the sign of each part in a bar. The smallest parts share the last one."""
    sizes: Counter[str] = Counter()
    for amount in measure.amounts:
        for name, size in amount.parts.items():
            sizes[name] += round(size * _UNITS[measure.kind])
    large = sum(sizes.values()) / _BAR
    signs = {name: sign for (name, _), sign in zip(sizes.most_common(), _SIGNS, strict=False)}
    return {name: signs[name] for name in measure.part_names if name in signs and sizes[name] >= large / 4}


def _bar(measure: StepMeasure, amount: Amount, fills: dict[str, str]) -> str:
    """Return the amount as a bar. A line at the end of the chip's memory is shown if that is near."""
    longest = max(one.known for one in measure.amounts)
    if not longest or not amount.parts:
        return ""
    limit = amount.limit if amount.limit and longest >= _LEAST_SHARE * amount.limit else None
    scale = _BAR / max(longest, limit or 0)
    bar, end = "", 0.0
    for name, size in amount.parts.items():
        end += size
        bar += fills.get(name, _REST) * (round(end * scale) - len(bar))
    if limit is not None:
        place = min(round(limit * scale), _BAR)
        bar = f"{bar[:place]:<{place}}│{bar[place:]}"
    return bar or "▏"
