"""The result of a search: the best layouts, why they are, and the candidates in time and memory."""

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from inspector.answers import verdict_bars
from inspector.answers.section import (
    Block,
    Column,
    Folded,
    Listing,
    Picture,
    Section,
    Table,
    Text,
    listing,
    notice,
    text,
    with_code,
)
from inspector.assessment import because
from inspector.compare.ratio import change_of
from inspector.figures.search_front import search_front
from inspector.layout import Layout
from inspector.search import order
from inspector.search.answer import answer_sentences, answer_text, name_of, ratio_between, round_of
from inspector.search.order import examples_of
from inspector.search.result import Candidate, Objective, SearchProgress, SearchResult, layout_of
from inspector.search.space import VARIED
from inspector.sharding.rules.rule import rule_text
from inspector.text.formatting import and_text, bytes_text, counted, left_text, seconds_text

_NOTHING_COMPILED = "Nothing was compiled: the compiler may choose other collectives."

SHOWN = 20  # candidates of the table
_VERDICT = 2  # sentences of the answer that are a verdict; the others are details
TABLE = "search"
_PHASES = {
    "bound": "Computing bounds of candidates",
    "partition": "Partitioning what can be among the best",
    "improve": "Changing single rules of the best candidate",
    "compile": "Compiling the most promising candidates",
    "done": "Done",
}
_STAGES = {
    "planned": "not partitioned", "propagated": "partitioned", "compiled": "compiled", "rejected": "rejected",
}  # fmt: skip
_WITHOUT_STEP = ("planned", "rejected")
_BUDGET_SPENT = "Ended because the budget of compiles is spent"
_NONE_BETTER = "Ended because no other candidate can be better."
_LESS = {"time": "to take less time", "memory": "to need less memory", "traffic": "to send less"}


def section(result: SearchResult) -> Section:
    """Return the best layout, its picture and the table of the best candidates."""
    return Section("search", "Search", (*head(result), *details(result)))


def head(result: SearchResult) -> tuple[Block, ...]:
    """Return the warnings of a search, and which layout is best."""
    blocks: list[Block] = []
    if result.message:
        blocks.append(notice("warning" if result.best is None else "info", result.message))
    if result.unsafe_compiler_options is not None:
        blocks.append(
            notice(
                "warning",
                f"Compiled with {result.unsafe_compiler_options}. The layouts do not contain these options: "
                "they run without them wherever they are opened.",
            )
        )
    return (*blocks, *answer(result))


def details(result: SearchResult) -> tuple[Block, ...]:
    """Return the pictures of the best layout and of all candidates, and the tables."""
    blocks: list[Block] = []
    if (steps := bars(result)) is not None:
        blocks.append(steps)
    shown = [
        candidate
        for candidate in result.candidates
        if candidate.stage != "rejected" and candidate.seconds is not None
    ]
    if shown:
        blocks.append(picture(result))
    blocks.append(summary(result))
    if others := answer_sentences(result)[_VERDICT:]:
        blocks.append(Listing(tuple(map(with_code, others))))
    blocks += [
        text(sentence, quiet=True)
        for sentence in (known_text(result), end_text(result))
        if sentence is not None
    ]
    if shown:
        blocks.append(table(result))
    rejected = reasons(result)
    if rejected is not None:
        blocks.append(rejected)
    return tuple(blocks)


def answer(result: SearchResult) -> tuple[Text, ...]:
    """Return which layout is best, in two sentences, and the reason of its step; nothing without one."""
    words, best = " ".join(answer_sentences(result)[:_VERDICT]), result.best_candidate
    if best is None:
        return ()
    reason = "" if best.assessment is None else because(best.assessment)
    return (text(*with_code(words)), *((text(*with_code(reason), quiet=True),) if reason else ()))


def bars(result: SearchResult) -> Picture | None:
    """Return the parts of a step and of the memory of the best and of the current layout; None if unknown."""
    best, current = result.best_candidate, result.current
    if best is None:
        return None
    named = [(name_of(best), best)]
    if current is not None and not best.current and current.stage == best.stage:
        named.append((f"{name_of(current)}, current", current))
    layouts = verdict_bars.drawn(
        [(name, candidate.assessment) for name, candidate in named if candidate.assessment is not None]
    )
    return verdict_bars.picture(layouts, "search_bars", step=_unit(result)) if layouts else None


def picture(result: SearchResult) -> Picture:
    """Return the candidates by time and memory."""
    words = f"Time of {round_of(result)} against memory of a device, one point for each candidate."
    said = answer_text(result)
    words += "" if said is None else f" {said.replace('`', '')}"
    return Picture("search_front", words, lambda width_px: search_front(result, width_px=width_px))


def summary(result: SearchResult) -> Text:
    """Return the number of candidates, and the change of the best layout from the current one."""
    best, current, counts = result.best_candidate, result.current, result.counts
    words = (
        f"{counts.considered:,} candidates: {counts.partitioned:,} partitioned, "
        f"{counts.compiled:,} compiled, {counts.rejected:,} rejected."
    )
    compared = best is not None and current is not None and current.stage == best.stage and not best.current
    if compared and best is not None and current is not None and current.seconds and best.seconds:
        ratio = ratio_between(current, best)
        change = "unknown" if ratio is None else change_of(ratio) or ratio.answer
        words += f" Against the current layout: {change}."
    return text(words, quiet=True)


def known_text(result: SearchResult) -> str | None:
    """Return what the bounds of the other candidates show; None if all were partitioned or it was stopped."""
    counts = result.counts
    if not result.listed or not counts.excluded:
        return None
    known, can_be = "By their bounds", "can be"
    if counts.estimated:
        known += f", or for {counts.estimated:,} an estimate from one and two layers"
        can_be = "is expected"
    words = (
        f"{counts.considered:,} considered, {counts.partitioned:,} partitioned. {known}, none of the others "
        f"{can_be} among the best {result.listed} before a compile."
    )
    unknown = sum(candidate.pareto is None for candidate in result.candidates)
    if unknown and result.objective == "time":
        words += f" {unknown:,} of them could need less memory, which is not known."
    return words


def end_text(result: SearchResult) -> str | None:
    """Return why the search ended, and whether others could be better; None if it was stopped."""
    if result.finished == "none better":
        return _NONE_BETTER
    if result.finished != "budget":
        return None
    if not result.counts.compiled:
        return _NOTHING_COMPILED
    count = predicted_better(result)
    if not count:
        return f"{_BUDGET_SPENT}; others could be better, as they are not compiled."
    others = counted(count, "candidate") + (" was" if count == 1 else " were")
    return f"{_BUDGET_SPENT}: {others} predicted {_LESS[result.objective]}, but not compiled."


def predicted_better(result: SearchResult) -> int:
    """Return the number of candidates predicted to be better than the best one, but not compiled.

    Both predictions are from before a compile. 0 if the search found that none of them can be better.
    """
    best = result.best_candidate
    if best is None or best.stage != "compiled" or result.finished == "none better":
        return 0
    least = _predicted(best, result.objective)
    waiting = (candidate for candidate in result.candidates if candidate.stage == "propagated")
    return sum(_predicted(candidate, result.objective) < least for candidate in waiting)


def _predicted(candidate: Candidate, objective: Objective) -> float:
    """Return the goal of the search, by example; the time as predicted before a compile."""
    if objective == "time":
        candidate = replace(candidate, seconds=candidate.partitioned_seconds, measured=None)
    return order.value(candidate, examples_of(layout_of(candidate)), objective)


def table(result: SearchResult) -> Table:
    """Return the best candidates and the current one, with the fields in which candidates differ."""
    valid = [
        other_fields(layout_of(candidate))
        for candidate in result.candidates
        if candidate.stage not in _WITHOUT_STEP
    ]
    names = [name for name in (valid or [{}])[0] if len({each.get(name) for each in valid}) > 1]

    def fields_of(candidate: Candidate) -> str:
        values = other_fields(layout_of(candidate))
        return ", ".join(f"{name}={values.get(name)}" for name in names)

    rows = listed(result)
    titles = _titles(rows)
    return Table.of(
        TABLE,
        rows,
        {
            "Layout": lambda candidate: titles[id(candidate)] + (" (current)" if candidate.current else ""),
            "Source": stage_text,  # of what follows
            _unit(result): lambda candidate: seconds_text(candidate.step),
            **_program_columns(result),
            Column(
                "Memory", "bytes", "The compiler's peak on one device, or an estimate before the compile"
            ): lambda candidate: candidate.peak_bytes,
            "Sent:bytes": lambda candidate: _sent(candidate),
            "Rules": rules_text,
            **({"Fields": fields_of} if names else {}),
            Column("Interval", "text", "Where eight of ten measured steps are expected"): interval_text,
            **(
                {
                    Column("Before a compile", "text", "Predicted time of a step before the compile"): (
                        lambda candidate: seconds_text(candidate.partitioned_seconds)
                    )
                }
                if result.counts.compiled
                else {}
            ),
            Column(
                "State and batch", "bytes", "State and batch on one device, a lower bound of its memory"
            ): lambda candidate: candidate.state_bytes,
        },
    )


def _titles(candidates: Iterable[Candidate]) -> dict[int, str]:
    """Return the name of each candidate, with the rules in which it differs from the first of this mesh."""
    first: dict[str, set[str]] = {}
    titles = {}
    for candidate in candidates:
        name, rules = name_of(candidate), set(rules_text(candidate).split(", "))
        known = first.setdefault(name, rules)
        differs = [f"with {rule}" for rule in sorted(rules - known)]
        differs += [f"without {rule}" for rule in sorted(known - rules)]
        titles[id(candidate)] = " ".join(filter(None, (name, ", ".join(differs))))
    return titles


def _program_columns(result: SearchResult) -> dict[Any, Any]:
    """Return the columns of the tokens per second and of each program, if a search has several."""
    columns: dict[Any, Any] = {}
    if any(candidate.tokens_per_second for candidate in result.candidates):
        title = Column("Tokens/s", "count", "Tokens that all devices generate in a second of a round")
        columns[title] = lambda candidate: candidate.tokens_per_second and round(candidate.tokens_per_second)
    names = [program.name for program in result.candidates[0].programs] if result.candidates else []
    counted_alone = round_of(result) != "a round"
    for name in names:
        if counted_alone and (result.weights or {}).get(name):
            continue
        limit = (result.limits or {}).get(name)
        meaning = "Predicted time of one run" + ("" if limit is None else f", at most {seconds_text(limit)}")
        columns[Column(name, "text", meaning)] = functools.partial(_run_text, name)
    return columns


def _run_text(name: str, candidate: Candidate) -> str:
    program = next((program for program in candidate.programs if program.name == name), None)
    return seconds_text(None if program is None else program.seconds)


def listed(result: SearchResult) -> list[Candidate]:
    """Return the candidates of the table: the first ones, the best that fits, and the current layout."""
    valid = [candidate for candidate in result.candidates if candidate.stage not in _WITHOUT_STEP]
    chosen = valid[:SHOWN]
    for candidate in (result.best_candidate, result.current):
        if candidate is not None and candidate not in chosen:
            chosen.append(candidate)
    return chosen


def _unit(result: SearchResult) -> str:
    """Return the name of the time of a candidate, as a heading: `Step`, `Decode step` or `Round`."""
    return round_of(result).removeprefix("a ").capitalize()


def why(result: SearchResult, candidate: Candidate) -> Section:
    """Return the differences from the layout that the search began with, each with its effect."""
    current = result.current
    if current is None or candidate.current:
        sentences = ["This is the layout that the search began with."] if candidate.current else []
        return Section("search_why", "Use of the mesh axes", (listing(*sentences, rules_text(candidate)),))
    before, after = layout_of(current), layout_of(candidate)
    items = [f"Mesh: {name_of(current)} → {name_of(candidate)}."]
    axes_before, axes_after = axes_of_logical(before), axes_of_logical(after)
    renamed = _renamed(axes_before, axes_after)
    if renamed:
        items.append(f"Axes: {and_text([f'{was} is now {now}' for was, now in renamed.items()])}.")
    for name in dict.fromkeys((*axes_before, *axes_after)):
        sharded = [renamed.get(axis, axis) for axis in axes_before.get(name, ())], axes_after.get(name, [])
        was, now = (" and ".join(axes) or "nothing" for axes in sharded)
        if was != now:
            items.append(f"{name}: sharded over {was} → {now}.")
    fields_before = other_fields(before)
    for name, value in other_fields(after).items():
        if value != fields_before.get(name):
            items.append(f"{name}: {fields_before.get(name)} → {value}.")
    timed = round_of(result).removeprefix("a ")
    items += [
        f"Sends over {axes}: {bytes_text(was)} → {bytes_text(now)} for each device and {timed}."
        for axes, was, now in _traffic(current, candidate, renamed)
        if was != now
    ]
    if current.state_bytes is not None and candidate.state_bytes is not None:
        items.append(
            f"State and batch on one device: {bytes_text(current.state_bytes)} → "
            f"{bytes_text(candidate.state_bytes)}."
        )
    steps, stage = (current.seconds, candidate.seconds), _STAGES[candidate.stage]
    if candidate.stage != current.stage:
        steps, stage = (current.partitioned_seconds, candidate.partitioned_seconds), "before a compile"
    before_step, step = steps
    if before_step and step:
        items.append(f"{_unit(result)}, {stage}: {seconds_text(before_step)} → {seconds_text(step)}.")
    runs = {program.name: program.seconds for program in current.programs}
    for program in candidate.programs if candidate.stage == current.stage else ():
        run = runs.get(program.name)
        if run and program.seconds and program.seconds != candidate.seconds:
            items.append(f"{program.name}: {seconds_text(run)} → {seconds_text(program.seconds)}.")
    return Section("search_why", "Differences from the current layout", (listing(*items),))


def other_fields(layout: Layout) -> dict[str, str]:
    """Return the fields that a search can vary in addition to mesh and rules, with their values as text."""
    every = dict(layout.sizes) | {name: getattr(layout, name) for name in VARIED}

    def text(value: object) -> str:
        if isinstance(value, tuple):
            return "+".join(value) or "none"
        return str(value).lower() if isinstance(value, bool) else str(value)

    return {name: text(value) for name, value in every.items()}


def axes_of_logical(layout: Layout) -> dict[str, list[str]]:
    """Return the mesh axes of the first rule of each logical axis, or the spec of each place.

    Mesh axes of one device are left out.
    """
    if not layout.rules:
        return {place: [", ".join(map(str, spec))] for place, spec in layout.specs.items()}
    small = {axis for axis, size in zip(layout.axis_names, layout.mesh_shape, strict=True) if size == 1}
    found: dict[str, list[str]] = {}
    for name, axes in layout.rules:
        found.setdefault(name, [axis for axis in axes if axis not in small])
    return found


def _renamed(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, str]:
    """Return the mesh axes that only one layout has, paired if they shard most of the same dimensions."""
    was, now = (dict.fromkeys(axis for axes in each.values() for axis in axes) for each in (before, after))
    alike = [
        (sum(old in axes and new in after.get(name, ()) for name, axes in before.items()), old, new)
        for old in was
        for new in now
        if old not in now and new not in was
    ]
    renamed: dict[str, str] = {}
    for count, old, new in sorted(alike, key=lambda pair: -pair[0]):
        if count and old not in renamed and new not in renamed.values():
            renamed[old] = new
    return renamed


def _traffic(before: Candidate, after: Candidate, renamed: dict[str, str]) -> list[tuple[str, int, int]]:
    named = {
        ",".join(renamed.get(axis, axis) for axis in axes.split(",")): sent
        for axes, sent in (before.wire_bytes or {}).items()
    }
    was, now = named, after.wire_bytes or {}
    return [
        (axes.replace(",", " and "), was.get(axes) or 0, now.get(axes) or 0)
        for axes in dict.fromkeys((*was, *now))
    ]


def stage_text(candidate: Candidate) -> str:
    """Return how far a candidate came, in a word."""
    word = _STAGES[candidate.stage]
    if candidate.within is False:
        word += ", above a limit"
    return f"{word}, does not fit" if candidate.fits is False else word


def reasons(result: SearchResult) -> Folded | None:
    """Return the reasons of rejected candidates, the most frequent first."""
    by_reason: dict[str, list[Candidate]] = {}
    for candidate in result.candidates:
        if candidate.stage == "rejected":
            by_reason.setdefault(candidate.reason or "unknown", []).append(candidate)
    if not by_reason:
        return None
    rows = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    count = sum(len(every) for _, every in rows)
    return Folded(
        f"{counted(count, 'rejected candidate')}, with the reason",
        (
            Table.of(
                "search_rejected",
                rows[:50],
                {
                    "Candidates:count": lambda row: len(row[1]),
                    "Such as": lambda row: name_of(row[1][0]),
                    "Reason": lambda row: row[0],
                },
            ),
        ),
    )


def progress_text(progress: SearchProgress) -> str:
    """Return the state of a search in one line."""
    words = _PHASES[progress.phase]
    if progress.total:
        words += f": {progress.done:,} of {progress.total:,}"
    if progress.seconds_left is not None:
        words += f", {left_text(progress.seconds_left)}"
    elif progress.phase == "compile" and not progress.done:
        words += ", time left unknown until the first compile ends"
    return words


def rules_text(candidate: Candidate) -> str:
    """Return the dimensions sharded over the mesh axes: `batch → fsdp, mlp → tensor`."""
    return use_text(layout_of(candidate))


def use_text(layout: Layout) -> str:
    """Return the dimensions sharded over mesh axes of more than one device; `nothing` on one device."""
    sizes = zip(layout.axis_names, layout.mesh_shape, strict=True)
    large = [axis for axis, size in sizes if size > 1]
    specs = {place: [axes or () for axes in spec] for place, spec in layout.specs.items()}
    every: list[tuple[str, Iterable[str]]] = [
        *layout.rules,
        *(() if layout.rules else ((place, axes) for place in specs for axes in specs[place])),
        *((row.pattern, row.axes) for row in layout.state_specs),
        ("optimizer state", layout.optimizer_axes),
    ]
    used: dict[str, dict[str, None]] = {}
    for name, axes in every:
        if named := dict.fromkeys(axis for axis in axes if axis in large):
            used.setdefault(name, {}).update(named)
    texts = [rule_text((name, tuple(axes))) for name, axes in used.items()]
    idle = [axis for axis in large if not any(axis in axes for axes in used.values())]
    # The code of a user's model can shard arrays over any axis.
    otherwise = "unknown" if layout.entry.own else "nothing"
    return ", ".join([*texts, *(f"{otherwise} → {axis}" for axis in idle)]) or "nothing"


def interval_text(candidate: Candidate) -> str:
    """Return the ends of the interval of a predicted time."""
    if candidate.measured is not None:
        return "measured"
    if candidate.low is None or candidate.high is None:
        return "unknown"
    return f"{seconds_text(candidate.low)} to {seconds_text(candidate.high)}"


def _sent(candidate: Candidate) -> int | None:
    if candidate.wire_bytes is None:
        return None
    known = [count for count in candidate.wire_bytes.values() if count is not None]
    return sum(known) if len(known) == len(candidate.wire_bytes) else None
