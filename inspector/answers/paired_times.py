"""Layouts timed together: sentences about the ratios, and a table of the times."""

import statistics
from collections.abc import Sequence

from inspector.answers.section import Section, Table, columns, listing
from inspector.compare import origin, paired_times
from inspector.compare.paired_times import PairedTimes
from inspector.compare.ratio import Ratio
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import and_text, counted, ratio_text, seconds_text, some_text
from inspector.text.program_names import title

Named = Sequence[tuple[str, Snapshot]]


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
    said += [
        _of_ratio(title(program), ratio, names[layout], names[base])
        for program in paired_times.PROGRAMS
        for layout, ratio in paired_times.ratios(times, base, program).items()
    ]
    return (*said, *_not_timed(times, names))


def table(times: PairedTimes, names: Sequence[str]) -> Table:
    """Return a table with one row per program and timed layout."""
    rows = [
        (
            title(program),
            names[layout],
            seconds_text(statistics.median(seconds)),
            f"{seconds_text(min(seconds))} – {seconds_text(max(seconds))}",
        )
        for program in paired_times.PROGRAMS
        for layout in times.timed
        if (seconds := times.seconds(layout, program))
    ]
    return Table("timing_table", columns("Program", "Layout", "Median", "Least – most"), tuple(rows))


def section(times: PairedTimes, named: Named, baseline: int) -> Section:
    """Return the sentences and the table."""
    names = [name for name, _ in named]
    said = (*sentences(times, names, baseline), *other_work(times, named, baseline))
    blocks = (listing(*said), table(times, names))
    return Section("times", "Timed together, emulated on this machine", blocks)


def other_work(times: PairedTimes, named: Named, baseline: int) -> tuple[str, ...]:
    """Return one sentence per timed layout whose model or sizes differ from the baseline's."""
    base = paired_times.base_of(times, baseline)
    works = [{"model": str(origin.model(side)), **(origin.sizes(side) or {})} for _, side in named]
    said = []
    for layout in times.timed:
        own, theirs = works[layout], works[base or 0]
        parts = [
            f"{key} {own.get(key, 'none')} instead of {theirs.get(key, 'none')}"
            for key in {**theirs, **own}
            if own.get(key) != theirs.get(key)
        ]
        if parts:
            said.append(
                f"{named[layout][0]} does other work than {named[base or 0][0]}: {some_text(parts, 3)}."
            )
    return tuple(said)


def _of_ratio(program: str, ratio: Ratio, name: str, base: str) -> str:
    said = f"{program}: {name} takes {ratio_text(ratio.value)} times as long as {base}: {ratio.answer}"
    return f"{said} ({ratio_text(ratio.low or 0)} to {ratio_text(ratio.high or 0)} with 95% confidence)."


def _not_timed(times: PairedTimes, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{names[untimed.layout]} was not timed: {untimed.reason}." for untimed in times.untimed)
