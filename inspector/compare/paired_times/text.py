"""Times of layouts timed together, as plain text for all media."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from inspector.compare import paired_times
from inspector.compare.paired_times.ratios import Ratio
from inspector.compare.paired_times.times import PairedTimes
from inspector.core.formatting import and_text, counted, ratio_text, seconds_text
from inspector.core.snapshot import Snapshot

PROGRAM_NAMES = {"train_step": "train step", "apply": "inference"}
EMULATED = "emulated on this machine"

# From this number of ratios on, a note explains that one 95% interval in 20 misses by chance.
_MANY_RATIOS = 4


def interval_text(ratio: Ratio) -> str:
    """Return `0.97–1.06`."""
    return f"{ratio_text(ratio.interval.low)}–{ratio_text(ratio.interval.high)}"


def coverage_text(ratio: Ratio) -> str:
    """Return the coverage of the interval: `96.5%`."""
    return f"{ratio.interval.coverage * 100:.1f}%"


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
    found = [
        one for name in paired_times.PROGRAMS for one in paired_times.ratios(times, base, name)
    ]
    said += [_of_ratio(one, names, base) for one in found]
    if len(found) >= _MANY_RATIOS:
        said.append("About 1 in 20 such intervals of equally fast layouts excludes 1 by chance.")
    return (*said, *_not_timed(times, names))


def columns(times: PairedTimes, names: Sequence[str], baseline: int) -> dict[str, list[str]]:
    """Return a table by column, with one row per program and timed layout."""
    base = paired_times.base_of(times, baseline)
    rows = []
    for program in paired_times.PROGRAMS:
        found = {} if base is None else {
            one.layout: one for one in paired_times.ratios(times, base, program)
        }  # fmt: skip
        for layout in times.timed:
            seconds = times.seconds(layout, program)
            if not seconds:
                continue
            one = found.get(layout)
            unknown = "1 (baseline)" if layout == base else "unknown"
            rows.append(
                (
                    PROGRAM_NAMES[program],
                    names[layout],
                    unknown if one is None else ratio_text(one.median),
                    "" if one is None else f"{interval_text(one)} ({coverage_text(one)})",
                    "" if one is None else one.verdict,
                    seconds_text(statistics.median(seconds)),
                    f"{seconds_text(min(seconds))} – {seconds_text(max(seconds))}",
                )
            )
    titles = ("Program", "Layout", "Ratio", "Interval", "Verdict", "Median", "Least – most")
    return {title: [row[place] for row in rows] for place, title in enumerate(titles)}


def text(
    times: PairedTimes, snapshots: Sequence[Snapshot], names: Sequence[str], baseline: int
) -> str:
    """The sentences and the table for a terminal; every line ends with a line end."""
    said = sentences(times, names, baseline) + other_work(times, snapshots, names, baseline)
    lines = [[title, *cells] for title, cells in columns(times, names, baseline).items()]
    widths = [max(map(len, column)) for column in lines]
    rows = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*lines, strict=True)
    ]
    return "".join(f"{line}\n" for line in (f"timed together, {EMULATED}", *said, "", *rows))


def other_work(
    times: PairedTimes, snapshots: Sequence[Snapshot], names: Sequence[str], baseline: int
) -> tuple[str, ...]:
    """Return one sentence per timed layout whose model or sizes differ from the baseline's."""
    base = paired_times.base_of(times, baseline)
    if base is None:
        return ()
    said, theirs = [], _work(snapshots[base])
    for layout in times.timed:
        own = _work(snapshots[layout])
        parts = [
            f"{key} {own.get(key, 'none')} instead of {theirs.get(key, 'none')}"
            for key in {**theirs, **own}
            if own.get(key) != theirs.get(key)
        ]
        if len(parts) > 3:
            parts = [*parts[:2], f"{len(parts) - 2} more"]
        if parts:
            said.append(f"{names[layout]} does other work than {names[base]}: {and_text(parts)}.")
    return tuple(said)


def _work(found: Snapshot) -> dict[str, object]:
    layout = found.layout or {}
    sizes = layout.get("sizes")
    model = {"model": layout["model"]} if "model" in layout else {}
    return model | (dict(sizes) if isinstance(sizes, dict) else {})


def _of_ratio(one: Ratio, names: Sequence[str], base: int) -> str:
    low, high = map(ratio_text, (one.interval.low, one.interval.high))
    said = (
        f"{PROGRAM_NAMES[one.program].capitalize()}: {names[one.layout]} takes {ratio_text(one.median)} "
        f"times as long as {names[base]}"
    )
    return f"{said}: {one.verdict} ({low} to {high} with {coverage_text(one)} confidence)."


def _not_timed(times: PairedTimes, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{names[one.layout]} was not timed: {one.reason}." for one in times.untimed)
