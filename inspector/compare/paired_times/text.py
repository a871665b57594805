"""What timing layouts together found, in words: plain text, the same on pages and in a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from inspector.compare import paired_times
from inspector.compare.paired_times.record import PairedTimes, Ratio
from inspector.core.formatting import counted, ratio_text, seconds_text
from inspector.core.snapshot import Snapshot

PROGRAM_NAMES = {"train_step": "train step", "apply": "inference"}
EMULATED = "emulated on this machine"

# One interval in twenty misses by chance; from so many on it is worth a word.
_MANY_RATIOS = 4


def interval_text(ratio: Ratio) -> str:
    """`0.97–1.06`."""
    return f"{ratio_text(ratio.interval.low)}–{ratio_text(ratio.interval.high)}"


def coverage_text(ratio: Ratio) -> str:
    """`96.5 %`, of the interval."""
    return f"{ratio.interval.coverage * 100:.1f} %"


def sentences(times: PairedTimes, names: Sequence[str], baseline: int) -> tuple[str, ...]:
    """How it was measured, each ratio with its verdict, and what was not timed and why."""
    base = paired_times.base_of(times, baseline)
    if base is None:
        return _not_timed(times, names)
    ran = _listed([names[layout] for layout in times.timed])
    said = [
        f"In each of {counted(times.rounds, 'round')} {ran} ran once, in an order that changed from round to "
        f"round, on {counted(times.devices, 'emulated device')} of one process of this machine."
    ]
    if base != baseline:
        said.append(f"{names[baseline]} was not timed, so the ratios are to {names[base]}.")
    found = [
        one for name in paired_times.PROGRAMS for one in paired_times.ratios(times, base, name)
    ]
    said += [_of_ratio(one, names, base) for one in found]
    if len(found) >= _MANY_RATIOS:
        said.append(
            "Of twenty such intervals of equally fast layouts about one misses 1 by chance."
        )
    return (*said, *_not_timed(times, names))


def columns(times: PairedTimes, names: Sequence[str], baseline: int) -> dict[str, list[str]]:
    """A table with a row for each program and layout timed, the baseline included."""
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
    """A sentence for each layout timed whose model or sizes are not those of what the ratios are to."""
    base = paired_times.base_of(times, baseline)
    if base is None:
        return ()
    said, theirs = [], _work(snapshots[base])
    for layout in times.timed:
        own = _work(snapshots[layout])
        parts = [
            f"{key} {own.get(key, 'none')} and not {theirs.get(key, 'none')}"
            for key in {**theirs, **own}
            if own.get(key) != theirs.get(key)
        ]
        if len(parts) > 3:
            parts = [*parts[:2], f"{len(parts) - 2} more"]
        if parts:
            said.append(f"{names[layout]} does other work than {names[base]}: {_listed(parts)}.")
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
    reach = f"{low} to {high} with {coverage_text(one)} confidence"
    if one.verdict == "within noise":
        return f"{said}, which is within noise: {reach} includes 1."
    return f"{said}: {one.verdict}, {reach}."


def _not_timed(times: PairedTimes, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{names[one.layout]} was not timed: {one.reason}." for one in times.untimed)


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
