"""Whether a layout is better than another one: the answer, the ratio of their steps, and one sentence.

A step is shorter only if the whole interval of the ratio says so. What does not fit, what JAX rejects, and
results that were computed in another way have no ratio.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from inspector.assessment.assess import chip_title
from inspector.compare import amounts
from inspector.compare.amounts import Kind
from inspector.compare.compared import (
    Compared,
    other_model,
    other_sizes,
    other_work,
    other_work_sizes,
    same_instructions,
    unusable,
    work_scale,
    work_unit,
)
from inspector.compare.question import Answer
from inspector.compare.ratio import COMMON, LESS, ratio_of
from inspector.prediction.ratios import assumption
from inspector.prediction.step_program import step_program
from inspector.records.assessment import FigureAnswer, FigureVerdict, Verdict
from inspector.text.formatting import and_text, bytes_text, capitalized, ratio_text, seconds_text
from inspector.text.program_names import noun

_COMPARED = ("better", "worse", "equal")
_LEAST: Mapping[Kind, str] = {"memory": "memory", "traffic": "traffic", "flops": "FLOPs"}


def verdicts(every: Sequence[Compared], baseline: int = 0) -> list[Verdict]:
    """Return the verdict of each layout but the baseline, in their order."""
    return [verdict(every[baseline], compared) for place, compared in enumerate(every) if place != baseline]


def verdict(baseline: Compared, candidate: Compared) -> Verdict:
    """Return whether a step of the candidate is shorter, and how its other figures compare."""
    judged = of_step(baseline, candidate)
    return replace(
        judged,
        figures=_figures(baseline, candidate),
        sentence=_sentence(judged, baseline, candidate),
    )


def of_step(baseline: Compared, candidate: Compared) -> Verdict:
    """Return whether a step of the candidate is shorter than one of the baseline, without a sentence."""
    per_token = other_work(baseline, candidate)
    verdict = Verdict(
        baseline=baseline.name,
        candidate=candidate.name,
        answer="not comparable",
        ratio=None,
        low=None,
        high=None,
        pairs=0,
        reason=_not_comparable(baseline, candidate),
        sentence="",
        per_token=per_token,
    )
    if verdict.reason is not None:
        verdict = _of_usable(verdict, baseline, candidate)
    elif same_instructions(baseline, candidate):
        reason = "both compile to the same instructions"
        verdict = replace(verdict, answer="not distinguishable", ratio=1.0, low=1.0, high=1.0, reason=reason)
    else:
        verdict = _judged(verdict, baseline, candidate)
        if other := other_sizes(baseline, candidate):
            reason = f"{and_text(other)} differ{'s' if len(other) == 1 else ''} too"
            verdict = replace(verdict, reason=f"{verdict.reason}; {reason}")
    return verdict


def _figures(baseline: Compared, candidate: Compared) -> tuple[FigureVerdict, ...]:
    """Return how memory, traffic and FLOPs compare. They need no chip, and no step that is known."""
    both = (baseline, candidate)
    figure_verdicts = []
    for kind in _LEAST:
        was, now = amounts.answers(kind, both, 0)
        ratio = None
        if now.verdict in _COMPARED and was.value:
            ratio = (now.value or 0) * (1.0 if kind == "memory" else work_scale(*both)) / was.value
        figure_verdicts.append(FigureVerdict(kind, cast(FigureAnswer, now.verdict), ratio))
    return tuple(figure_verdicts)


def headline(every: Sequence[Compared], baseline: int = 0) -> str:
    """Return one sentence about all layouts; empty for fewer than two.

    Of two layouts it is their verdict. Of more, it is about the largest group of layouts that can be compared
    with each other: the one with the shortest step, and those that are not distinguishable from it. If no
    two steps can be compared, it names the layouts with the least memory, traffic and FLOPs of one model.
    """
    if len(every) < 2:
        return ""
    if len(every) == 2:
        return verdicts(every, baseline)[0].sentence
    usable = [compared for compared in every if unusable(compared) is None]
    if not usable:
        return " ".join(f"{capitalized(unusable(compared) or '')}." for compared in every)
    first = sorted(usable, key=lambda compared: compared is not every[baseline])
    same = _largest_group(first, lambda lead, compared: _not_comparable(lead, compared) is None)
    if len(same) > 1:
        return _shortest_step(every, same)
    return _least_figures(
        every, _largest_group(first, lambda lead, compared: other_model(lead, compared) is None)
    )


def _largest_group(
    ordered: Sequence[Compared], alike: Callable[[Compared, Compared], bool]
) -> list[Compared]:
    """Return the largest group of layouts that are alike; the first of those on a tie."""
    groups: list[list[Compared]] = []
    for compared in ordered:
        group = next((group for group in groups if alike(group[0], compared)), None)
        if group is None:
            groups.append([compared])
        else:
            group.append(compared)
    return max(groups, key=len)


def _shortest_step(every: Sequence[Compared], same: Sequence[Compared]) -> str:
    """Return which of the layouts that can be compared has the shortest step, and the answer for others."""
    best = min(same, key=_cost)
    others = {compared.name: of_step(best, compared) for compared in every if compared is not best}
    step = best.assessment.step
    if step is None:  # both compile to the same instructions
        return " ".join(verdict(best, compared).sentence for compared in same if compared is not best)
    alone = all(others[compared.name].answer == "worse" for compared in same if compared is not best)
    measured = "measured" if step.kind == "measured" else "predicted"
    margin = "" if alone else " by a margin within the uncertainty"
    parts = [f"{best.name} has the shortest step{margin}, {step.value_text} {measured}"]
    for answer, words in (("not distinguishable", "not distinguishable from it"), ("worse", "slower")):
        alike = [one for one in same if one is not best and others[one.name].answer == answer]
        if not alike:
            continue
        parts.append(f"{words}: {and_text(list(map(_with_step, alike)))}")
        if len(alike) == 1 and answer == "not distinguishable":
            parts.append(others[alike[0].name].reason or "")
    ranked = ("not distinguishable", "worse")
    reasons = [
        f"{compared.name} ({others[compared.name].reason or _not_comparable(same[0], compared)})"
        for compared in every
        if compared is not best and (compared not in same or others[compared.name].answer not in ranked)
    ]
    return "; ".join([*parts, *([f"not comparable: {and_text(reasons)}"] if reasons else [])]) + "."


def _with_step(compared: Compared) -> str:
    step = compared.assessment.step
    return compared.name if step is None else f"{compared.name} ({step.value_text})"


def _cost(compared: Compared) -> float:
    step = compared.assessment.step
    return math.inf if step is None else step.seconds / (compared.tokens or 1.0)


def _least_figures(every: Sequence[Compared], same: Sequence[Compared]) -> str:
    """Return which of the layouts of one model needs, sends and computes the least, and why no step is."""
    lead = same[0]
    if len(same) < 2:
        reasons = [
            f"{compared.name} ({unusable(compared) or _not_comparable(lead, compared)})"
            for compared in every
            if compared is not lead
        ]
        return f"No two of these layouts can be compared: {lead.name}, {and_text(reasons)}."
    least: dict[tuple[str, ...], list[str]] = {}
    for kind, words in _LEAST.items():
        figures = amounts.answers(kind, same, 0)
        ranked = ("baseline", "better", "worse", "equal")
        if any(answer.verdict not in ranked or answer.value is None for answer in figures):
            continue
        lowest = min(answer.value or 0 for answer in figures)
        names = tuple(
            compared.name for compared, answer in zip(same, figures, strict=True) if answer.value == lowest
        )
        if len(names) < len(same):
            least.setdefault(names, []).append(words)
    clauses = [
        f"{and_text(list(names))} {'has' if len(names) == 1 else 'have'} the least {and_text(what)}"
        for names, what in least.items()
    ]
    why = dict.fromkeys(
        reason for compared in every if (reason := _not_comparable(lead, compared)) and compared is not lead
    )
    begin = f"{'; '.join(clauses)}. " if clauses else ""
    return f"{begin}Steps are not comparable: {'; '.join(why)}."


def _judged(verdict: Verdict, baseline: Compared, candidate: Compared) -> Verdict:
    """Return the verdict with ratio, interval and answer; both steps are known."""
    ratio = ratio_of(baseline.assessment, candidate.assessment, work_scale(baseline, candidate))
    assert ratio is not None  # checked in `_not_comparable`
    reason = ratio.reason
    if ratio.decider is not None:
        better = candidate if ratio.decider.candidate else baseline
        reason = f"{better.name} is better if {ratio.decider.condition}"
    known = {name: getattr(ratio, name) for name in ("answer", "low", "high", "pairs")}
    if ratio.reason == COMMON:
        known["assumption"] = assumption(candidate.assessment.chip or "")
    return replace(verdict, ratio=ratio.value, reason=reason, **known)


def _of_usable(verdict: Verdict, baseline: Compared, candidate: Compared) -> Verdict:
    """Return the verdict without a ratio. A layout that can run is better than one that cannot.

    That holds for layouts of one model on one chip whose own figures say that the other one can run.
    """
    cannot_run = [unusable(side) is not None for side in (baseline, candidate)]
    if cannot_run[0] == cannot_run[1] or other_model(baseline, candidate):
        return verdict
    usable = candidate if cannot_run[0] else baseline
    need = usable.assessment.memory
    if baseline.assessment.chip != candidate.assessment.chip or (
        need is not None and need.capacity_bytes is not None and need.fits is None
    ):
        return verdict
    return replace(verdict, answer="better" if usable is candidate else "worse")


def _not_comparable(baseline: Compared, candidate: Compared) -> str | None:
    """Return why no ratio of the steps says which layout is better; None if one does."""
    both = baseline, candidate
    reason = next((why for compared in both if (why := unusable(compared))), None)
    reason = reason or other_model(baseline, candidate)
    if reason is None and same_instructions(baseline, candidate):
        return _other_machines(baseline, candidate)
    return reason or _other_steps(baseline, candidate)


def _other_steps(baseline: Compared, candidate: Compared) -> str | None:
    """Return why the two steps were not computed in the same way; None if they were."""
    first, second = baseline.assessment, candidate.assessment
    if first.program and second.program and first.program != second.program:
        return f"their programs differ: {noun(first.program)} and {noun(second.program)}"
    for side in (baseline, candidate):
        if side.assessment.step is None:
            return f"the step of {side.name} is unknown: {side.assessment.unknown_step}"
    if other := _other_machines(baseline, candidate):
        return other
    assert first.step is not None and second.step is not None
    if first.step.kind == "measured":
        if "cpu" in (baseline.evidence.platform, candidate.evidence.platform):
            return (
                "their steps were measured in separate runs on emulated devices, which share one machine: "
                "time the layouts together, or choose a chip"
            )
        return None
    for side in (baseline, candidate):
        if why := _unsure(side):
            return why
    return None


def _other_machines(baseline: Compared, candidate: Compared) -> str | None:
    """Return how the chips or the evidence of two layouts differ; None if they do not."""
    if baseline.assessment.chip != candidate.assessment.chip:
        titles = [chip_title(side.assessment) for side in (baseline, candidate)]
        return f"the chips differ: {and_text(titles)}"
    was, now = baseline.evidence, candidate.evidence
    if (was.stage, was.platform) != (now.stage, now.platform):
        return f"{baseline.name} is {was.text}; {candidate.name} is {now.text}"
    return None


def _unsure(compared: Compared) -> str | None:
    """Return why a predicted step is not a basis for a verdict; None if it is."""
    step, program = compared.assessment.step, step_program(compared.snapshot)
    if step is not None and step.kind == "at least":
        return f"only a lower bound of the step of {compared.name} is known: {step.at_least}"
    if step is None or step.low is None:
        return f"{compared.name} was not compiled for this chip, so the interval of its step is unknown"
    if program is not None and compared.evidence.before_compile:
        work = program.work
        if work is None or work.boundary_bytes is None:
            return f"the memory traffic of {compared.name} is unknown before a compile"
    return None


def _sentence(verdict: Verdict, baseline: Compared, candidate: Compared) -> str:
    """Return the verdict in words: what cannot run, then time, then memory and traffic."""
    cannot_run = [why for side in (baseline, candidate) if (why := unusable(side))]
    if cannot_run:
        usable = [side.name for side in (baseline, candidate) if unusable(side) is None]
        rest = ""
        if usable:
            runs = verdict.answer in ("better", "worse")
            rest = f" {and_text(usable)} {'can run' if runs else 'can be compared with other layouts only'}."
        return f"{capitalized('; '.join(cannot_run))}.{rest}"
    of_time = _time_sentence(verdict, baseline, candidate)
    if verdict.answer != "not comparable":
        equal = verdict.answer == "not distinguishable" and same_instructions(baseline, candidate)
        said_before = _agreeing(verdict, baseline, candidate)
        kinds: tuple[Kind, ...] = tuple(kind for kind in ("memory", "traffic") if kind not in said_before)
        clauses = [] if equal else _clauses(baseline, candidate, kinds)
        said = [f"{verdict.candidate} {and_text([words for _, words in clauses])}."] if clauses else []
        return " ".join([of_time, *said])
    clauses = [] if other_model(baseline, candidate) else _clauses(baseline, candidate, tuple(_LEAST))
    if not clauses:
        return of_time
    return f"{_figures_sentence(verdict, clauses)} Their steps are not comparable: {verdict.reason}."


def _figures_sentence(verdict: Verdict, clauses: Sequence[tuple[Answer, str]]) -> str:
    """Return the memory, traffic and FLOPs of the candidate: the better ones first, then the worse ones."""
    better, equal, worse = (
        [words for answer, words in clauses if answer.verdict == of] for of in ("better", "equal", "worse")
    )
    if better and worse:
        return f"{verdict.candidate} {and_text(better)}, but {and_text(worse + equal)}."
    if not better and not worse:
        return f"{verdict.candidate} {and_text(equal)} as {verdict.baseline}."
    lead = f"{verdict.candidate} is {'better' if better else 'worse'} than {verdict.baseline} in each figure"
    if equal:
        return f"{verdict.candidate} {and_text(better + worse + equal)} as {verdict.baseline}."
    return f"{lead}: it {and_text(better + worse)}."


def _clauses(baseline: Compared, candidate: Compared, kinds: Sequence[Kind]) -> list[tuple[Answer, str]]:
    """Return how the candidate compares in some figures, those that can be compared, each with its answer."""
    clauses = []
    for kind in kinds:
        was, now = amounts.answers(kind, (baseline, candidate), 0)
        if now.verdict in _COMPARED and was.value is not None and now.value is not None:
            scale = 1.0 if kind == "memory" else work_scale(baseline, candidate)
            per = f" per {work_unit(baseline)}" if other_work(baseline, candidate) and scale != 1 else ""
            clauses.append((now, _CLAUSES[kind](was.value, scale * now.value, now.verdict == "equal") + per))
    return clauses


def _memory_clause(before: float, after: float, equal: bool) -> str:
    if equal:
        return "needs as much memory"
    more = "more" if after > before else "less"
    return f"needs {bytes_text(round(abs(after - before)))} {more} memory"


def _traffic_clause(before: float, after: float, equal: bool) -> str:
    if equal:
        return "sends as much"
    if not before:
        return f"sends {bytes_text(round(after))}"
    if not after:
        return "sends nothing"
    return f"sends {_times_text(after / before, 'much', 'more', 'less')}"


def _flops_clause(before: float, after: float, equal: bool) -> str:
    if equal or not before:
        return "computes as many FLOPs" if equal else f"computes {amounts.amount_text('flops', after)}"
    return f"computes {_times_text(after / before, 'many FLOPs', 'more FLOPs', 'fewer FLOPs')}"


def _times_text(ratio: float, much: str, more: str, less: str) -> str:
    """Return `6.9 times as much`, or `25% less` below twice as much."""
    if ratio >= 2:
        return f"{ratio:,.0f} times as {much}" if ratio >= 10 else f"{ratio:.2g} times as {much}"
    return f"{abs(ratio - 1):.{0 if abs(ratio - 1) > 0.01 else 1}%} {more if ratio > 1 else less}"


_CLAUSES: Mapping[Kind, Callable[[float, float, bool], str]] = {
    "memory": _memory_clause,
    "traffic": _traffic_clause,
    "flops": _flops_clause,
}


def _time_sentence(verdict: Verdict, baseline: Compared, candidate: Compared) -> str:
    if verdict.answer == "not comparable":
        return f"{verdict.baseline} and {verdict.candidate} are not comparable: {verdict.reason}."
    if verdict.ratio == 1 and same_instructions(baseline, candidate):
        return f"{verdict.baseline} and {verdict.candidate} are equal: {verdict.reason}."
    before, after = baseline.assessment.step, candidate.assessment.step
    assert before is not None and after is not None and verdict.ratio is not None
    times = f"{seconds_text(before.seconds)} and {seconds_text(after.seconds)}"
    per = ""
    if verdict.per_token:
        unit = work_unit(baseline)
        per = f" per {unit}, because the {other_work_sizes(baseline, candidate)} differ"
        times = " and ".join(
            f"{seconds_text(step.seconds)} for {side.tokens or 0:,.0f} {unit}s"
            for side, step in ((baseline, before), (candidate, after))
        )
    ratio = ""
    if verdict.low is not None and verdict.high is not None:
        ends = ratio_text(verdict.low), ratio_text(verdict.high)
        ratio = f" (ratio {ratio_text(verdict.ratio)}, {ends[0]} to {ends[1]})"
    if verdict.answer == "not distinguishable":
        return (
            f"{verdict.baseline} and {verdict.candidate} are not distinguishable{per}: {verdict.reason}. "
            f"Their steps take {times}{ratio}."
        )
    takes = f"its step takes {seconds_text(after.seconds)} instead of {seconds_text(before.seconds)}"
    if per:
        takes = f"their steps take {times}"
    elif (verdict.reason or "").startswith(LESS):
        figures = and_text([*_agreeing(verdict, baseline, candidate).values()])
        each = "no more time" if verdict.answer == "better" else "no less time"
        takes = (
            f"its products, memory traffic and transfers each need {each}{figures and f', with {figures}'}; "
            f"it takes {takes.partition(' takes ')[2]}"
        )
    return f"{verdict.candidate} is {verdict.answer} than {verdict.baseline}{per}: {takes}{ratio}."


def _agreeing(verdict: Verdict, baseline: Compared, candidate: Compared) -> dict[Kind, str]:
    """Return the figures whose answer is that of the step, if it rests on less of everything."""
    figures: dict[Kind, str] = {}
    if (verdict.reason or "").startswith(LESS):
        ends: dict[Kind, str] = {"traffic": " of traffic", "flops": ""}
        for kind, end in ends.items():
            was, now = amounts.answers(kind, (baseline, candidate), 0)
            if now.verdict == verdict.answer:
                figures[kind] = f"{now.text} instead of {was.text}{end}"
    return figures
