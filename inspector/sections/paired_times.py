"""Layouts timed together: sentences about the ratios, and a table of the times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from inspector.compare import paired_times
from inspector.compare.paired_times.ratios import Ratio
from inspector.compare.paired_times.times import PairedTimes
from inspector.core.formatting import and_text, counted, ratio_text, seconds_text, some_text
from inspector.core.program_names import title
from inspector.core.snapshot import Snapshot
from inspector.sections.section import Cell, Section, Table, columns, listing

Named = Sequence[tuple[str, Snapshot]]

# From this number of ratios on, a note explains that one 95% interval in 20 misses by chance.
_MANY_RATIOS = 4


def sentences(times: PairedTimes, names: Sequence[str], baseline: int) -> tuple[str, ...]:
    """Return how the layouts were timed, each ratio with its verdict, and why some were not timed."""
    base = paired_times.base_of(times, baseline)
    if base is None:
        return _not_timed(times, names)
    ran = and_text([names[layout] for layout in times.timed])
    said = [
        f"{ran} ran once in each of {counted(times.rounds, 'round')}, in changing order, on "
        f"{counted(times.devices, 'emulated device')} in one process."
    ]
    if base != baseline:
        said.append(f"{names[baseline]} was not timed, so ratios are relative to {names[base]}.")
    ratios = [ratio for name in paired_times.PROGRAMS for ratio in paired_times.ratios(times, base, name)]
    said += [_of_ratio(ratio, names, base) for ratio in ratios]
    if len(ratios) >= _MANY_RATIOS:
        said.append("About 1 in 20 such intervals of equally fast layouts excludes 1 by chance.")
    return (*said, *_not_timed(times, names))


def table(times: PairedTimes, names: Sequence[str], baseline: int) -> Table:
    """Return a table with one row per program and timed layout."""
    base = paired_times.base_of(times, baseline)
    rows: list[tuple[Cell, ...]] = []
    for program in paired_times.PROGRAMS:
        ratios = () if base is None else paired_times.ratios(times, base, program)
        by_layout = {ratio.layout: ratio for ratio in ratios}
        for layout in times.timed:
            seconds = times.seconds(layout, program)
            if not seconds:
                continue
            compared: tuple[Cell, ...] = ("1 (baseline)" if layout == base else None, "", "")
            if ratio := by_layout.get(layout):
                interval = f"{_interval_text(ratio, '–')} ({_coverage_text(ratio)})"
                compared = ratio_text(ratio.median), interval, ratio.verdict
            spread = f"{seconds_text(min(seconds))} – {seconds_text(max(seconds))}"
            median = seconds_text(statistics.median(seconds))
            rows.append((title(program), names[layout], *compared, median, spread))
    headings = ("Program", "Layout", "Ratio", "Interval", "Verdict", "Median", "Least – most")
    return Table("timing_table", columns(*headings), tuple(rows))


def section(times: PairedTimes, named: Named, baseline: int) -> Section:
    """Return the sentences and the table."""
    names = [name for name, _ in named]
    said = (*sentences(times, names, baseline), *other_work(times, named, baseline))
    blocks = (listing(*said), table(times, names, baseline))
    return Section("times", "Timed together, emulated on this machine", blocks)


def other_work(times: PairedTimes, named: Named, baseline: int) -> tuple[str, ...]:
    """Return one sentence per timed layout whose model or sizes differ from the baseline's."""
    base = paired_times.base_of(times, baseline)
    if base is None:
        return ()
    said, (other, snapshot) = [], named[base]
    theirs = _work(snapshot)
    for layout in times.timed:
        name, snapshot = named[layout]
        own = _work(snapshot)
        parts = [
            f"{key} {own.get(key, 'none')} instead of {theirs.get(key, 'none')}"
            for key in {**theirs, **own}
            if own.get(key) != theirs.get(key)
        ]
        if parts:
            said.append(f"{name} does other work than {other}: {some_text(parts, 3)}.")
    return tuple(said)


def _work(snapshot: Snapshot) -> dict[str, object]:
    layout = snapshot.layout or {}
    sizes = layout.get("sizes")
    model = {"model": layout["model"]} if "model" in layout else {}
    return model | (dict(sizes) if isinstance(sizes, dict) else {})


def _of_ratio(ratio: Ratio, names: Sequence[str], base: int) -> str:
    said = (
        f"{title(ratio.program)}: {names[ratio.layout]} takes {ratio_text(ratio.median)} "
        f"times as long as {names[base]}"
    )
    interval = f"{_interval_text(ratio, ' to ')} with {_coverage_text(ratio)} confidence"
    return f"{said}: {ratio.verdict} ({interval})."


def _interval_text(ratio: Ratio, between: str) -> str:
    return between.join(map(ratio_text, (ratio.interval.low, ratio.interval.high)))


def _coverage_text(ratio: Ratio) -> str:
    return f"{ratio.interval.coverage * 100:.1f}%"


def _not_timed(times: PairedTimes, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{names[untimed.layout]} was not timed: {untimed.reason}." for untimed in times.untimed)
