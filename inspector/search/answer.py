"""The answer of a search: the best layout, those not distinguishable from it, and the costs of other ways."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.compare.ratio import Ratio, change_of, longer_from, ratio_of
from inspector.search.order import Goal, examples_of, value
from inspector.search.result import Candidate, SearchResult, layout_of
from inspector.text.formatting import and_text, counted, mesh_sizes_text, seconds_text

_SAME = 1.005  # a ratio that is shown as 1


@dataclass(frozen=True)
class SearchAnswer:
    """The answer of a search.

    Attributes:
      best: the best layout that fits.
      alike: the layouts that may fit and whose step cannot be distinguished from that of the best one, at the
        same stage.
      more: the number of others that could be among them: not partitioned, and not decided by their bounds.
      others: other ways to use the devices, the slowest first: the fastest layout of those in which another
        mesh axis is the largest, this axis, and its step over that of the best layout.
    """

    best: Candidate
    alike: tuple[Candidate, ...]
    more: int
    others: tuple[tuple[Candidate, str, Ratio], ...]


def answer_of(result: SearchResult) -> SearchAnswer | None:
    """Return the answer of a search; None if no layout is known to fit."""
    best = result.best_candidate
    if best is None:
        return None
    alike = tuple(
        candidate
        for candidate in result.candidates
        if candidate is not best and candidate.allowed and _is_alike(best, candidate)
    )
    longest = math.inf if best.assessment is None else longer_from(best.assessment)
    longest /= examples_of(layout_of(best))
    more = sum(_may_be_alike(best, candidate, longest) for candidate in result.candidates)
    others = sorted(_others(result, best), key=lambda other: -other[2].value)
    return SearchAnswer(best, alike, more, tuple(others))


def answer_text(result: SearchResult) -> str | None:
    """Return all of `answer_sentences`; None without a best layout."""
    return " ".join(answer_sentences(result)) or None


def answer_sentences(result: SearchResult) -> list[str]:
    """Return the answer, `fsdp 16 is the best layout, 97 ms.` first; nothing without a best layout.

    Only the objective of time compares steps.
    """
    answer = answer_of(result)
    if answer is None:
        return []
    best = answer.best
    about = " before a compile" if best.stage == "propagated" else ""
    unit = "" if best.measured is not None or best.assessment is None else _about(best)
    takes = f"{round_of(result)} takes {unit}{seconds_text(best.step)}"
    if (tokens := best.tokens_per_second) is not None:
        each = tokens / layout_of(best).devices
        most = "at most " if unit == "at least " else ""
        takes += f", {most}{_rounded(tokens)} tokens per second, {_rounded(each)} on each device"
    sentences = [f"{name_of(best)} is the best layout{about}: {takes}."]
    if result.objective != "time":
        what = {"memory": "needs the least memory", "traffic": "sends the least"}[result.objective]
        return [f"{name_of(best)} {what}{about}; {takes}.", *_programs(result, best)]
    count = len(answer.alike)
    if count:
        least = "At least " if answer.more else ""
        sentences.append(f"{least}{counted(count, 'other layout')} cannot be told apart from it.")
    if answer.others:
        other, axis, ratio = answer.others[0]
        along = f"With most devices along `{axis}` ({name_of(other)})"
        sentences.append(f"{along}, the time changes by {change_of(ratio)}.")
    return [*sentences, *_programs(result, best)]


def _rounded(number: float) -> str:
    """Return a number with three significant digits."""
    return f"{float(f'{number:.3g}'):,g}"


def round_of(result: SearchResult) -> str:
    """Return the name of the time of a candidate: `a step`, `a decode step` or `a round`."""
    weights = {name: weight for name, weight in (result.weights or {}).items() if weight}
    if not weights or not result.candidates:
        return "a step"
    step = layout_of(result.candidates[0]).step_program
    if weights != {step: 1.0}:
        return "a round"
    return "a decode step" if step == "decode" else "a step"


def _programs(result: SearchResult, best: Candidate) -> Iterator[str]:
    """Yield a sentence for each program that is not all of what counts, and one for the limits."""
    layout, round_ = layout_of(best), round_of(result)
    runs = Goal(result.weights or {}).runs(layout)
    if round_ == "a round":
        each = and_text([f"{number:,g} × {name}" for name, number in runs.items() if number])
        yield f"A round serves {examples_of(layout, layout.step_program):,g} examples: {each}."
    known = [
        candidate
        for candidate in result.candidates
        if candidate.stage == best.stage and candidate.fits is not False
    ]
    for program in best.programs:
        if program.seconds is None or (round_ != "a round" and runs.get(program.name)):
            continue
        number = examples_of(layout, program.name)
        # Of layouts with other batches, a run does other work.
        equal = [
            candidate for candidate in known if examples_of(layout_of(candidate), program.name) == number
        ]
        shortest = min(equal, key=lambda candidate: _run_of(candidate, program.name))
        words = f"One run of {program.name} with {counted(int(number), 'example')} takes "
        words += ("at least " if program.is_bound else "") + seconds_text(program.seconds)
        ratio = program.seconds / _run_of(shortest, program.name)
        if ratio < _SAME:
            yield f"{words}; it is not shorter in any other layout that is known."
            continue
        words += f"; in {name_of(shortest)}, the shortest that is known, it takes "
        yield f"{words}{seconds_text(_run_of(shortest, program.name))}."
    for name, limit in (result.limits or {}).items():
        keeps = [
            program.keeps(limit)
            for candidate in known
            for program in candidate.programs
            if program.name == name
        ]
        words = f"{name} may take {seconds_text(limit)}; {keeps.count(False):,} of "
        words += f"{counted(len(known), 'known layout')} take longer"
        unknown = keeps.count(None)
        yield words + (f", and of {unknown:,} it is unknown." if unknown else ".")


def _run_of(candidate: Candidate, name: str) -> float:
    """Return the seconds of one run of a program; infinite if unknown."""
    seconds = next((program.seconds for program in candidate.programs if program.name == name), None)
    return math.inf if seconds is None else seconds


def name_of(candidate: Candidate) -> str:
    """Return the mesh of a candidate: `fsdp 16 × tensor 4`."""
    layout = layout_of(candidate)
    return mesh_sizes_text(layout.axis_names, layout.mesh_shape)


def _about(candidate: Candidate) -> str:
    step = None if candidate.assessment is None else candidate.assessment.step
    if step is None:
        return ""
    return "at least " if step.kind == "at least" else "about " if step.outside else ""


def _is_alike(best: Candidate, candidate: Candidate) -> bool:
    figures = [one.assessment for one in (best, candidate)]
    if candidate.stage != best.stage:
        figures = [one.assessment if one.stage == "propagated" else one.before for one in (best, candidate)]
    was, now = figures
    if was is None or now is None or candidate.stage in ("planned", "rejected"):
        return False
    need = now.memory
    if need is not None and need.capacity_bytes is not None and need.peak_bytes > need.capacity_bytes:
        return False
    ratio = ratio_between(replace(best, assessment=was), replace(candidate, assessment=now))
    return ratio is not None and ratio.answer == "not distinguishable"


def ratio_between(baseline: Candidate, candidate: Candidate) -> Ratio | None:
    """Return the ratio of the steps of two candidates for each example; None if one is unknown."""
    scale = examples_of(layout_of(baseline)) / examples_of(layout_of(candidate))
    was, now = baseline.assessment, candidate.assessment
    return None if was is None or now is None else ratio_of(was, now, scale)


def _may_be_alike(best: Candidate, candidate: Candidate, longest: float) -> bool:
    """Return whether the bounds of a candidate do not show that its step is longer than that of the best.

    longest: the bound for each example from which they do.
    """
    known = best.stage == "propagated" and best.assessment is not None and best.assessment.step is not None
    return known and candidate.stage == "planned" and _seconds(candidate) < longest


def _others(result: SearchResult, best: Candidate) -> Iterator[tuple[Candidate, str, Ratio]]:
    """Yield the fastest layout with each other largest mesh axis."""
    own = _largest(best)
    fastest: dict[str, Candidate] = {}
    for candidate in result.candidates:
        axis = _largest(candidate)
        if axis in (None, own) or not 0 < _seconds(candidate) < math.inf or not candidate.allowed:
            continue
        if axis not in fastest or _seconds(candidate) < _seconds(fastest[axis]):
            fastest[axis] = candidate
    for axis, candidate in fastest.items():
        ratio = ratio_between(best, candidate) if candidate.stage == best.stage else None
        if ratio is not None and ratio.answer == "worse":
            yield candidate, axis, ratio


def _largest(candidate: Candidate) -> str | None:
    """Return the mesh axis that is larger than all others; None if two are equally large."""
    if candidate.stage == "rejected":
        return None
    layout = layout_of(candidate)
    sizes = sorted(zip(layout.mesh_shape, layout.axis_names, strict=True), reverse=True)
    if len(sizes) > 1 and sizes[0][0] == sizes[1][0]:
        return None
    return sizes[0][1]


def _seconds(candidate: Candidate) -> float:
    """Return the seconds of a step for each example, or their bound; infinite if unknown."""
    examples = examples_of(layout_of(candidate))
    if candidate.stage == "planned":
        return math.inf if candidate.at_least is None else candidate.at_least / examples
    return value(candidate, examples, "time")
