"""Comparison of several Snapshots: sentences, the board, specs that differ, maps, and times in pairs."""

import statistics
from collections import Counter
from collections.abc import Sequence

from inspector.answers import assessed, subject, unknown, verdict_bars
from inspector.answers.arrays import size_of
from inspector.answers.section import (
    Block,
    Cell,
    Column,
    Columns,
    Folded,
    Inline,
    Listing,
    Mark,
    NoticeKind,
    Picture,
    Section,
    Strong,
    Table,
    Text,
    columns,
    listing,
    more,
    text,
)
from inspector.compare import difference, origin, paired_times
from inspector.compare.amounts import Amount
from inspector.compare.caveats import caveats
from inspector.compare.compared import compared
from inspector.compare.difference import SpecDifference
from inspector.compare.paired_times import PairedTimes
from inspector.compare.question import UNKNOWN, Answer, Question, mark
from inspector.compare.questions import STATE, StepMeasure, questions
from inspector.compare.ratio import Ratio
from inspector.compare.splits import without_idle_axes
from inspector.compare.verdict import headline
from inspector.figures.block_map import block_map, why_no_map
from inspector.machines.hardware import Chip
from inspector.records.assessment import MEMORY, STEP, TRAFFIC
from inspector.records.snapshot import Snapshot
from inspector.text.formatting import and_text, counted, ratio_text, seconds_text, some_text
from inspector.text.program_names import title

Named = Sequence[tuple[str, Snapshot]]

KINDS: dict[str, NoticeKind] = {
    "better": "success",
    "worse": "error",
    "different": "info",
    "not distinguishable": "info",
}
# Rows that are shown even if all answers are equal, because they describe the column.
_ALWAYS = ("Source", "Mesh", MEMORY, STEP, TRAFFIC)
_MOST_REASONS = 3  # more are a second table
_MAX_MAPS = 3  # arrays with shard maps; one if there are more than four Snapshots
_MAX_SPECS = 60


def sections(named: Named, chip: Chip | None) -> tuple[Section, ...]:
    """Return all parts of the comparison below its verdict; empty for a single Snapshot."""
    if len(named) < 2:
        return ()
    rows = difference.spec_rows([snapshot for _, snapshot in named])
    return (sentences(named, chip), board(named, chip), specs(named, rows), maps(named, rows))


def verdict(named: Named, chip: Chip | None, baseline: int = 0) -> Section:
    """Return the verdict in one sentence, or the answers of a single Snapshot, with the reason of each."""
    every = compared(named, chip)
    if len(every) == 1:
        own = every[0].assessment
        blocks: tuple[Block, ...] = (
            assessed.verdict(own, subject.title(named, chip)), *verdict_bars.reason(own),
        )  # fmt: skip
        return Section("verdict", "Verdict", blocks)
    first, stop, rest = headline(every, baseline).partition(". ")
    blocks = (text(Strong(f"{first}{stop.strip()}"), f" {rest}" * bool(rest)),)
    reasons = [
        (Strong(one.name), ": ", *reason.parts)
        for one in every[:_MOST_REASONS]
        if one.assessment.step is not None and one.assessment.rejected is None
        for reason in verdict_bars.reason(one.assessment)
    ]
    if reasons and len(every) <= _MOST_REASONS:
        blocks += (Listing(tuple(reasons)),)
    return Section("verdict", "Verdict", blocks)


def sentences(named: Named, chip: Chip | None) -> Section:
    """Return what changes from the first Snapshot to each of the others, with caveats."""
    changes = differences(named, chip)
    blocks: tuple[Block, ...] = tuple(
        Section(f"difference-{number}", f"{name} compared with {named[0][0]}", inside)
        for number, (name, inside) in enumerate(changes)
    )
    return Section("difference", "Differences", blocks if len(changes) > 1 else changes[0][1])


def differences(
    named: Named, chip: Chip | None, baseline: int = 0, most: int = 12, most_caveats: int = 12
) -> list[tuple[str, tuple[Block, ...]]]:
    """Return, by name, what changes from the baseline to each other Snapshot, with caveats.

    Args:
      most, most_caveats: the sentences that are shown; the others open on request.
    """
    before = named[baseline][1]
    made = []
    for name, after in (*named[:baseline], *named[baseline + 1 :]):
        said = difference.sentences(before, after, chip)
        reasons = [caveat.text for caveat in caveats(before, after)]
        blocks: list[Block] = [listing(*said[:most])]
        if reasons:
            blocks.append(text(f"Caveats: {' '.join(reasons[:most_caveats])}", quiet=True))
        if rest := [*said[most:], *reasons[most_caveats:]]:
            blocks.append(Folded(counted(len(rest), "more sentence"), (listing(*rest),)))
        made.append((name, tuple(blocks)))
    return made


def board(named: Named, chip: Chip | None) -> Section:
    """Return one row per question and one column per Snapshot; parts and other rows open on request."""
    every = questions(compared(named, chip))
    main, equal = board_rows(every)
    names = [name for name, _ in named]
    blocks: list[Block] = [board_table("board", names, main)]
    parts = part_rows(every)
    if equal or parts:
        summary = " and ".join(["Parts"] * bool(parts) + [counted(len(equal), "more answer")] * bool(equal))
        blocks.append(Folded(summary, (board_table("equal", names, [*parts, *equal]),)))
    return Section("board", "Side by side", (*blocks, legend(names[0])))


def legend(baseline: str) -> Text:
    """Return the baseline of the table."""
    return text(f"Compared with {baseline}. Answers without a mark are equal to it.", quiet=True)


def board_rows(rows: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Return the rows that differ or describe the column, and the others. One without answers is left out.

    Of the train state, one row is enough as long as the others have the same verdicts.
    """
    main: list[Question] = []
    states: set[tuple[str, ...]] = set()
    for row in rows:
        if not row.differs and (row.title not in _ALWAYS or row.unknown):
            continue
        verdicts = tuple(answer.verdict for answer in row.answers)
        if row.section != STATE or verdicts not in states:
            main.append(row)
        if row.section == STATE and row.better is not None:
            states.add(verdicts)
    return main, [row for row in rows if row not in main and not row.unknown]


def every_row(rows: Sequence[Question]) -> list[Question]:
    """Return all rows with an answer, and after those about the step their parts."""
    about_step = [row for row in rows if isinstance(row, StepMeasure)]
    known = [row for row in rows if not row.unknown]
    last = max((place for place, row in enumerate(known) if row in about_step), default=-1)
    return [*known[: last + 1], *part_rows(rows), *known[last + 1 :]]


def part_rows(rows: Sequence[Question]) -> list[Question]:
    """Return the parts of memory, step and traffic, their intervals, and their basis, as rows."""
    found: list[Question] = []
    for measure in rows:
        if not isinstance(measure, StepMeasure) or not measure.part_names:
            continue
        amounts = measure.amounts
        texts = {
            name: [_part_text(measure, amount, name) for amount in amounts] for name in measure.part_names
        }
        if any(amount.low is not None for amount in amounts):
            names = dict.fromkeys(amount.ends for amount in amounts if amount.low is not None)
            texts[" or ".join(names)] = [_interval_text(measure, amount) for amount in amounts]
        texts["based on"] = [amount.stage or UNKNOWN for amount in amounts]
        found += [
            Question(measure.title, title, None, tuple(Answer(None, text, "baseline") for text in answers))
            for title, answers in texts.items()
        ]
    return found


def _part_text(measure: StepMeasure, amount: Amount, name: str) -> str:
    size = amount.parts.get(name)
    if size is None:
        return "–" if amount.value is not None else UNKNOWN
    return measure.text(size)


def _interval_text(measure: StepMeasure, amount: Amount) -> str:
    if amount.low is None or amount.high is None:
        return UNKNOWN
    return f"{measure.text(amount.low)} to {measure.text(amount.high)}"


def board_table(key: str, names: Sequence[str], rows: Sequence[Question], baseline: int = 0) -> Table:
    """Return a table of questions, grouped by section, with marked answers."""
    headings = [
        f"{name} (baseline)" if place == baseline and len(names) > 1 else name
        for place, name in enumerate(names)
    ]
    cells: list[tuple[Cell, ...]] = []
    section = None
    for row, beside in zip(rows, remarks(rows), strict=True):
        if row.section != section:
            section = row.section
            cells.append((Strong(section), *("" for _ in names)))
        cells.append((row.title, *map(_cell, row.answers, beside)))
    return Table(key, (Column("Question"), *map(Column, headings)), tuple(cells), wrap=True)


def specs(named: Named, rows: Sequence[SpecDifference]) -> Section:
    """Return the PartitionSpecs that differ, and on request those that do not."""
    changed = [row for row in rows if row.differs]
    same = [row for row in rows if not row.differs]
    blocks: list[Block] = [text("All PartitionSpecs are equal.")]
    if changed:
        blocks = [spec_table("specs", named, changed[:_MAX_SPECS])]
    blocks += more(len(changed) - _MAX_SPECS, "row")
    if same:
        arrays = counted(sum(len(row.paths) for row in same), "array")
        table = spec_table("equal-specs", named, same[:_MAX_SPECS])
        blocks.append(Folded(f"{arrays} with equal PartitionSpecs", (table,)))
    return Section("specs", "PartitionSpecs", tuple(blocks))


def maps(named: Named, rows: Sequence[SpecDifference]) -> Section:
    """Return shard maps of the largest arrays that are sharded differently."""
    most = _MAX_MAPS if len(named) <= 4 else 1
    blocks: list[Block] = []
    for number, path in enumerate(differing(named, rows, most)):
        drawn = tuple((text(Strong(name)), _map(path, name, snapshot)) for name, snapshot in named)
        blocks.append(Section(f"differing-{number}", path, (Columns(drawn),)))
    if not blocks:
        reason = "No array is sharded differently."
        if any(row.differs for row in rows):
            reason = "No array that is sharded differently has a shard map in two Snapshots."
        blocks = [text(reason)]
    return Section("differing", "Arrays that are sharded differently", tuple(blocks))


def differing(named: Named, rows: Sequence[SpecDifference], most: int) -> list[str]:
    """Return the paths of the largest arrays whose spec differs, one per row, parameters first.

    An array needs a shard map in at least two Snapshots.
    """
    sizes: dict[str, tuple[bool, int]] = {}
    drawn: Counter[str] = Counter()
    for _, snapshot in named:
        for array in snapshot.arrays:
            size = (array.group == "params", size_of(array))
            sizes[array.path] = max(sizes.get(array.path, (False, 0)), size)
            mesh = snapshot.mesh_of(array)
            drawn[array.path] += mesh is not None and why_no_map(array, mesh) is None
    by_row = [[path for path in row.paths if drawn[path] > 1] for row in rows if row.differs]
    largest = [max(paths, key=sizes.__getitem__) for paths in by_row if paths]
    return sorted(largest, key=sizes.__getitem__, reverse=True)[:most]


def remarks(rows: Sequence[Question]) -> list[list[str]]:
    """Return the remark of each answer, row by row.

    A remark that is above in its column and section is left out, unless it qualifies a mark.
    """
    made: list[list[str]] = []
    above: list[str] = []
    section = None
    for row in rows:
        if row.section != section:
            above, section = [""] * len(row.answers), row.section
        said = [answer.remark for answer in row.answers]
        made.append(
            [
                "" if one == last and answer.verdict not in KINDS else one
                for answer, one, last in zip(row.answers, said, above, strict=True)
            ]
        )
        above = [one or last for one, last in zip(said, above, strict=True)]
    return made


def _cell(answer: Answer, beside: str) -> tuple[Inline, ...]:
    parts: list[Inline] = [answer.text]
    verdict = mark(answer)
    if verdict:
        parts += [" ", Mark(verdict, KINDS.get(answer.verdict, "unknown"))]
    if beside:
        parts.append(f" ({beside})")
    return tuple(parts)


def spec_table(key: str, named: Named, rows: Sequence[SpecDifference]) -> Table:
    """Return the PartitionSpec of each array in every layout."""
    names = (Column(name, "code") for name, _ in named)
    return Table(
        key,
        (Column("Arrays", "code"), Column("Number", "count"), *names),
        tuple(
            (row.title, len(row.paths), *("absent" if spec is None else spec for spec in row.specs))
            for row in rows
        ),
    )


def _map(path: str, name: str, snapshot: Snapshot) -> Block:
    array = next((one for one in snapshot.arrays if one.path == path), None)
    mesh = None if array is None else snapshot.mesh_of(array)
    if array is None or mesh is None:
        return unknown.unknown(
            "This Snapshot has no such array." if snapshot.mesh else "The mesh is unknown."
        )
    reason = why_no_map(array, mesh)
    if reason is not None:
        return unknown.unknown(reason)
    drawn = without_idle_axes(array, mesh)
    return Picture(
        f"{name}-{path}",
        f"Blocks of {path} in {name}",
        lambda width_px: block_map(drawn, mesh, width_px=width_px),
        stamp=subject.source_lines([(name, snapshot)]),
    )


def timing_sentences(times: PairedTimes, names: Sequence[str], baseline: int) -> tuple[str, ...]:
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
    said = (*timing_sentences(times, names, baseline), *other_work(times, named, baseline))
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
