"""The answers about one Snapshot for one screen: its name, four figures, moves, findings and arrays."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from inspector import audit
from inspector.answers import (
    assessed,
    collectives,
    improvements,
    measured,
    program_run,
    sharding_errors,
    subject,
    summary,
    unknown,
    verdict_bars,
)
from inspector.answers.arrays import GROUP_TITLES
from inspector.answers.catalogue import Subject
from inspector.answers.programs import heading, named, once
from inspector.answers.section import (
    Block,
    Cell,
    Code,
    Inline,
    Listing,
    Mark,
    Section,
    Strong,
    Table,
    columns,
    more,
    text,
    with_code,
)
from inspector.assessment import assess, memory_words, part_text
from inspector.assessment.assess import traffic_of
from inspector.assessment.because import axes_text
from inspector.assessment.measured import measured_step
from inspector.compare import partitioned_traffic
from inspector.layout import layout_of
from inspector.machines import targets
from inspector.prediction.evidence import platform_of
from inspector.prediction.step_model import modelled
from inspector.prediction.step_program import (
    are_before_compile,
    initializers,
    known_flops,
    measured_seconds,
    step_program,
)
from inspector.records.assessment import MEMORY, STEP, TRAFFIC, Assessment
from inspector.records.snapshot import Array, Finding, Program, Snapshot
from inspector.records.statistics import statistics, statistics_text
from inspector.sharding.folding import fold
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.totals import state_title, state_totals, totals
from inspector.sharding.traffic import wire_bytes_of_run
from inspector.text.formatting import and_text, bytes_text, seconds_text, share_text
from inspector.text.program_names import noun

LEAST = 0.01  # share of memory, traffic or work from which something has a line
_MOST_MOVES, _MOST_FINDINGS, _MOST_GROUPS, _MOST_PROGRAMS, _MOST_CHANGES = 3, 5, 10, 5, 2
_MOST_WORDS = 32  # of a finding, and of its fix
_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z`])")
_BAR, _SIGNS, _REST = 20, "█▓▒", "░"  # signs of the longest bar

Parts = Sequence[tuple[str, float, str]]  # name, amount and its text


def of_snapshot(about: Subject) -> list[Block]:
    """Return the answers, the most important first."""
    program = step_program(about.snapshot)
    assessment = assess(about.recorded, about.chip)
    picture = verdict_bars.picture(verdict_bars.drawn([("", assessment)]), "verdict")
    return [
        *_head(about, program),
        *_measured(about, program),
        *sharding_errors.sections(about.snapshot),
        replace(picture, in_text=(_answers(about, program, assessment),)),
        *_wider(about.snapshot, program),
        *_reason(assessment),
        *_moves(about, program),
        *main_findings(about),
        *_programs(about),
        *_arrays(about.snapshot),
    ]


def _head(about: Subject, program: Program | None) -> Iterator[Block]:
    """Yield the subject, and the program of its figures."""
    run = about.run
    ended = [] if run is None else [f" · {program_run.line(run)}"]
    yield text(Strong(subject.line([("", about.recorded)], about.chip)), *ended)
    programs, no_steps = once(about.snapshot), initializers(about.snapshot)
    if program is None or len(programs) < 2:
        return
    why = (
        f"with the most FLOPs on a device{' before a compile' if are_before_compile(about.snapshot) else ''}"
    )
    if measured_seconds(program):
        why = "whose measured steps take longest"
    elif known_flops(program) is None:
        why = "that comes first"
    elif any(one.flops_per_device is None for one in about.snapshot.programs):
        why = "with the most known FLOPs, in one iteration of each loop of unknown length"
    if about.recorded.layout is None:
        others = and_text([noun(other.name) for other in programs if other in no_steps])
        count = sum(other not in no_steps for other in programs)
        compared = f"of {count} programs" if count > 1 else "the only program"
        compared += f" other than {others}" if others else ""
        compared += f" the one {why}" if count > 1 else ""
        profile = ""
        if run is not None and not measured_seconds(program):  # JAX calls a compiled program without Python
            profile = " Calls are not counted: run --profile measures which one takes longest."
        shown = Strong(heading(program, about.snapshot))
        yield text("Step and traffic are those of ", shown, f", {compared}.{profile}")


def _measured(about: Subject, program: Program | None) -> Iterator[Block]:
    """Yield the measured step, its waits, and its spread."""
    ran = None if program is None else about.recorded.program(program.name)
    if ran is None or ran.seconds is None or (taken := statistics(ran.seconds.steps)) is None:
        return
    profiled = measured_step(about.recorded, ran, targets.chip_of(about.recorded))
    if profiled is not None:
        yield from measured.said(profiled)
    else:
        yield text("Measured: ", named(ran.name), f", {statistics_text(taken)}.")


def _answers(about: Subject, program: Program | None, assessment: Assessment) -> Table:
    step, need, sent = assessment.step, assessment.memory, assessment.traffic
    rows: list[tuple[Cell, ...]] = []

    def add(label: str, value: str, parts: Parts = (), whole: float = 0.0) -> None:
        rows.append((Strong(label), value, *_bar(parts, whole)))

    of_step: Parts = ()
    if step is not None:
        across = any(part.kind == "between" for part in step.parts)
        of_step = [
            (part_text(part, across, step.kind == "measured"), part.seconds, seconds_text(part.seconds))
            for part in step.parts
        ]
    add(STEP, assessed.step_text(assessment) + _mfu_text(about, program, assessment), of_step)
    of_memory: Parts = ()
    if need is not None:
        of_memory = [
            (memory_words(kind, need)[0], size, bytes_text(size)) for kind, size in need.parts.items()
        ]
    other = need is not None and need.program not in (None, assessment.program)
    of = f" of {need.program}" if need is not None and other and about.recorded.layout is None else ""
    add(f"{MEMORY}{of}", assessed.fits_text(assessment), of_memory, (need and need.capacity_bytes) or 0.0)
    of_traffic = (
        [(axes_text(axes), size, bytes_text(size)) for axes, size in sent.by_axes.items()] if sent else ()
    )
    add(TRAFFIC, assessed.traffic_text(assessment), of_traffic)
    if about.snapshot.arrays:
        state = state_totals(about.snapshot)
        size = summary.state_text(state, summary.device_count(about.snapshot))
        rows.append((Strong(state_title(about.snapshot)), bytes_text(state.per_device), "", size))
    return Table("answers", columns("", "", "", ""), tuple(rows), wrap=True)


def _wider(snapshot: Snapshot, program: Program | None) -> Iterator[Block]:
    """Yield that a compiler for CPUs sends some values in a larger type than the program's."""
    if program is None or platform_of(snapshot, program) != "cpu":
        return
    rows = partitioned_traffic.rows_of(snapshot) or ()
    if any(row.program == program.name and "wider" in row.reasons for row in rows):
        yield text("XLA for CPUs sends some values in a larger type than that of the program.", quiet=True)


def _reason(assessment: Assessment) -> tuple[Block, ...]:
    """Return the longest wait of a step, or the memory that does not fit. The traffic is above it."""
    need = assessment.memory
    known = (
        assessment.rejected or (need and need.fits is False) or (assessment.step and assessment.step.parts)
    )
    return verdict_bars.reason(assessment) if known else ()


def _mfu_text(about: Subject, program: Program | None, assessment: Assessment) -> str:
    """Return the share of the peak FLOPs that the step uses, `, 41% MFU`; "" if it is unknown."""
    step, mesh = assessment.step, None if program is None else about.snapshot.mesh_of(program)
    if step is None or program is None or mesh is None or about.chip is None or step.kind == "at least":
        return ""
    model = modelled(program, mesh, about.chip)
    if not model.flops or not model.flops_per_second:
        return ""
    # The FLOPs of the devices can be repeated ones, so they give no MFU.
    flops, name = model.flops, "of the peak FLOPs"
    if model.ideal_flops:
        flops, name = model.ideal_flops / model.devices, "MFU"
    return f", {share_text(flops / (model.flops_per_second * step.seconds), 0)} {name}"


def _bar(parts: Parts, whole: float) -> tuple[Cell, Cell]:
    """Return parts as a bar, and what its signs mean."""
    ranked = sorted((part for part in parts if part[1]), key=lambda part: -part[1])
    total = sum(amount for _, amount, _ in ranked)
    if not ranked:
        return "", ""
    scale, bar, end = _BAR / max(whole, total), "", 0.0
    legend = []
    for place, (name, amount, words) in enumerate(ranked):
        sign = _SIGNS[place] if place < len(_SIGNS) and amount >= LEAST * total else _REST
        end += amount
        bar += sign * (round(end * scale) - len(bar))
        if sign != _REST:
            legend.append(f"{sign} {name} {words}")
    if len(ranked) > len(legend):
        legend.append(f"{_REST} the rest")
    if whole > total:
        bar = f"{bar or '▏':·<{_BAR}}│"
    return Code(bar or "▏"), ", ".join(legend)


def _moves(about: Subject, program: Program | None) -> Iterator[Block]:
    if program is None:
        return
    if program.collectives is None:
        yield text(unknown.no_collectives(program, about.snapshot))
    elif not program.collectives:
        devices = program.devices_on(about.snapshot.mesh_of(program))
        yield text(*collectives.headline(program.name, (), devices))
    else:
        rows = collectives.moves(program, most=_MOST_MOVES, least=LEAST)
        yield Section(
            "moves",
            "What moves most",
            rows or (text(*collectives.headline(program.name, program.collectives)),),
        )


def matter(found: Sequence[Finding], about: Subject) -> list[Finding]:
    """Return the findings about 1% of memory, traffic, work or the step, errors, and warnings without a size.

    Errors come first, then warnings, and of each level those about most.
    """
    shares = [(finding, _share(finding, about)) for finding in found]
    kept = [
        (finding, share or 0.0)
        for finding, share in shares
        if finding.level == "error" or (finding.level == "warning" if share is None else share >= LEAST)
    ]
    return [
        finding
        for finding, _ in sorted(kept, key=lambda one: (improvements.LEVELS.index(one[0].level), -one[1]))
    ]


def _share(finding: Finding, about: Subject) -> float | None:
    """Return the largest share of memory, traffic or work that a finding is about; None if it has no size.

    Of messages it is the share of the step that communication over their mesh axes takes, if that is known.
    """
    assessment = assess(about.recorded, about.chip)
    need, step = assessment.memory, assessment.step
    shares = []
    if finding.bytes:
        share = audit.share_of_memory(finding.bytes, about.recorded)
        shares.append(min(share, finding.bytes / need.peak_bytes) if need and need.peak_bytes else share)
    if finding.wire_bytes:
        sent = [wire_bytes_of_run(*program.collectives or ()) or 0 for program in about.recorded.programs]
        shares.append(finding.wire_bytes / max(*sent, finding.wire_bytes))
    if finding.ratio and finding.ratio > 1:
        shares.append(1 - 1 / finding.ratio)
    if finding.code == audit.SMALL_MESSAGES:
        axes = "+".join(finding.axes or ())
        taken = [part.seconds / step.seconds for part in step.parts if part.axes == axes] if step else []
        shares.append(sum(taken) if taken else LEAST)
    return max(shares, default=None)


def main_findings(about: Subject) -> Iterator[Block]:
    """Yield the findings that matter, each with its fix, and the changes that save most."""
    every = audit.ranked(about.recorded)
    shown = matter(every, about)
    mistakes = improvements.mistakes(shown)
    changes = improvements.ranked(about.snapshot, (), about.chip)[:_MOST_CHANGES]
    items = (
        *map(improvements.sentence, changes),
        *(_finding(mistake, about) for mistake in mistakes[:_MOST_FINDINGS]),
    )
    if items:
        left = len(improvements.mistakes(every)) - len(mistakes[:_MOST_FINDINGS])
        yield Section("findings", "Findings", (Listing(items), *more(left, "finding")))
    elif not every:
        yield text("No findings.")


def _finding(mistake: Sequence[Finding], about: Subject) -> tuple[Inline, ...]:
    """Return the first sentences of a finding, and its fix."""
    row, layout = improvements.of_mistake(mistake), layout_of(about.recorded)
    first, *_ = mistake
    change = layout and audit.smallest_change(about.recorded, first, layout)
    fix: tuple[Inline, ...] = ()
    if change:
        fix = (" ", *improvements.fix_text(change, row.findings))
    elif first.remedy is not None:
        fix = (" Fix: ", *with_code(beginning(first.remedy, _MOST_WORDS)))
    message = beginning(row.message, _MOST_WORDS)
    # The message often has the amount.
    gain = "" if not first.bytes or bytes_text(first.bytes) in message else f" ({row.gain})"
    return (Mark(row.label, row.kind), ": ", *with_code(message), gain, *fix)


def beginning(sentences: str, most: int) -> str:
    """Return the first sentences of a text up to a number of words, but at least the first sentence."""
    kept = ""
    for sentence in _SENTENCE_END.split(sentences):
        if kept and len(f"{kept} {sentence}".split()) > most:
            break
        kept = f"{kept} {sentence}".strip()
    return kept


def _programs(about: Subject) -> Iterator[Block]:
    """Yield the programs of a recorded run, and why functions were compiled again."""
    every = once(about.snapshot)
    if about.recorded.layout is None and len(every) > 1:
        others = sorted(every[1:], key=lambda one: -(wire_bytes_of_run(*one.collectives or ()) or 0))
        table = Table.of(
            "programs",
            [every[0], *others][:_MOST_PROGRAMS],
            {
                "Program": lambda program: heading(program, about.snapshot),
                "Sent": lambda program: _sent_text(about.snapshot, program),
            },
        )
        yield Section("programs", "Programs", (table,))
    yield from program_run.again(about.run)


def _sent_text(snapshot: Snapshot, program: Program) -> str:
    sent = traffic_of(program, snapshot.mesh_of(program))
    return "unknown" if sent is None else sent.text


def _arrays(snapshot: Snapshot) -> Iterator[Block]:
    """Yield the arrays by group, each with its largest array and how that is sharded."""
    groups: dict[str, list[Array]] = {}
    for array in snapshot.arrays:
        groups.setdefault(array.group, []).append(array)
    every = {group: totals(snapshot, (group,)) for group in groups}
    whole = sum(one.per_device or 0 for one in every.values())
    rows = []
    for group, arrays in groups.items():
        if (size := every[group].per_device or 0) >= LEAST * whole:
            largest = max(fold(arrays), key=lambda one: one.bytes_per_device or 0)
            rows.append(
                (
                    GROUP_TITLES.get(group, group),
                    every[group].arrays,
                    size,
                    largest.path,
                    "one device" if len(largest.first.shards or ()) == 1 else spec_text(largest.first.spec),
                )
            )
    rows.sort(key=lambda row: -row[2])
    if rows:
        yield Table(
            "groups",
            columns("Arrays", "Number:count", "Bytes per device:bytes", "Largest:code", "PartitionSpec:code"),
            tuple(rows[:_MOST_GROUPS]),
        )
