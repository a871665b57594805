"""Whether a layout is better than another one: the answer, the ratio of their steps, and one sentence.

A step is shorter only if the whole interval of the ratio says so. What does not fit, what JAX rejects, and
what was computed in another way has no ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inspector.assessment import assess
from inspector.compare import origin
from inspector.compare.ratio import ratio_of
from inspector.core.assessment import LEAST_CHANGE, Assessment, Verdict
from inspector.core.evidence import Evidence
from inspector.core.formatting import and_text, bytes_text, seconds_text
from inspector.core.program_names import noun
from inspector.core.snapshot import Snapshot
from inspector.core.statistics import sum_known
from inspector.core.step_program import step_program
from inspector.core.totals import STATE_GROUPS
from inspector.machines import hardware
from inspector.machines.evidence import for_chip
from inspector.machines.hardware import Chip
from inspector.machines.prediction.ratios import ratio_interval

# Sizes that change the amount of work of a step, but not the model, and their plurals.
_WORK_SIZES = {"batch": "batches", "seq": "sequence lengths"}


@dataclass(frozen=True)
class Compared:
    """A Snapshot with its name and its assessment."""

    name: str
    snapshot: Snapshot
    assessment: Assessment

    @property
    def evidence(self) -> Evidence:
        """What its figures rest on."""
        assert self.assessment.evidence is not None  # only links and old files have none
        return self.assessment.evidence

    @property
    def tokens(self) -> float | None:
        """Tokens of one step, or examples of a model without sequences; None if unknown."""
        sizes = origin.sizes(self.snapshot) or {}
        numbers = [_number(sizes[name]) for name in _WORK_SIZES if name in sizes]
        return None if not numbers or None in numbers else math.prod(n or 0 for n in numbers)


def compared(named: Sequence[tuple[str, Snapshot]], chip: Chip | None = None) -> list[Compared]:
    """Return the Snapshots with their assessments, each on its own chip or else on the chosen one."""
    return [Compared(name, for_chip(snapshot, chip), assess(snapshot, chip)) for name, snapshot in named]


def verdicts(every: Sequence[Compared], baseline: int = 0) -> list[Verdict]:
    """Return the verdict of each layout but the baseline, in their order."""
    return [verdict(every[baseline], compared) for place, compared in enumerate(every) if place != baseline]


def verdict(baseline: Compared, candidate: Compared) -> Verdict:
    """Return whether a step of the candidate is shorter than one of the baseline."""
    per_token = _other_work(baseline, candidate)
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
    elif _same_instructions(baseline, candidate):
        reason = "both compile to the same instructions"
        verdict = replace(verdict, answer="not distinguishable", ratio=1.0, low=1.0, high=1.0, reason=reason)
    else:
        verdict = _judged(verdict, baseline, candidate)
        if other := _other_sizes(baseline, candidate):
            reason = f"{and_text(other)} differ{'s' if len(other) == 1 else ''} too"
            verdict = replace(verdict, reason="; ".join(filter(None, (reason, verdict.reason))))
    return replace(verdict, sentence=_sentence(verdict, baseline, candidate))


def headline(every: Sequence[Compared], baseline: int = 0) -> str:
    """Return one sentence about all layouts; empty for fewer than two.

    Of two layouts it is their verdict. Of more, it names the one with the shortest step, and those that are
    not distinguishable from it.
    """
    if len(every) < 2:
        return ""
    if len(every) == 2:
        return verdicts(every, baseline)[0].sentence
    usable = [compared for compared in every if _unusable(compared) is None]
    if not usable:
        return " ".join(f"{_capital(_unusable(compared) or '')}." for compared in every)
    # Only layouts that can be compared with the baseline have a place in one order.
    lead = every[baseline] if every[baseline] in usable else usable[0]
    same = [compared for compared in usable if compared is lead or _not_comparable(lead, compared) is None]
    best = min(same, key=_cost)
    others = {compared.name: verdict(best, compared) for compared in every if compared is not best}
    parts = []
    for answer, words in (
        ("not distinguishable", "not distinguishable from it"),
        ("worse", "slower"),
    ):
        names = [
            _with_ratio(compared, others[compared.name])
            for compared in same
            if compared is not best and others[compared.name].answer == answer
        ]
        if names:
            parts.append(f"{words}: {and_text(names)}")
    reasons = [
        f"{compared.name} ({others[compared.name].reason})"
        for compared in every
        if compared is not best and others[compared.name].answer == "not comparable"
    ]
    if reasons:
        parts.append(f"not comparable: {and_text(reasons)}")
    begin = _shortest(best, same, others)
    return f"{begin}{'; ' if parts else ''}{'; '.join(parts)}."


def _shortest(best: Compared, same: Sequence[Compared], others: dict[str, Verdict]) -> str:
    step = best.assessment.step
    if step is None or len(same) < 2:
        return f"No two of these layouts can be compared; {best.name} is the first that can run"
    alone = all(others[compared.name].answer == "worse" for compared in same if compared is not best)
    measured = "measured" if step.kind == "measured" else "predicted"
    which = "has the shortest step" if alone else "has the shortest step by a margin within the uncertainty"
    return f"{best.name} {which}, {step.value_text} {measured}"


def _with_ratio(compared: Compared, verdict: Verdict) -> str:
    step = compared.assessment.step
    return compared.name if step is None else f"{compared.name} ({step.value_text})"


def _cost(compared: Compared) -> float:
    step = compared.assessment.step
    return math.inf if step is None else step.seconds / (compared.tokens or 1.0)


def _judged(verdict: Verdict, baseline: Compared, candidate: Compared) -> Verdict:
    """Return the verdict with ratio, interval and answer; both steps are known."""
    scale = 1.0
    if verdict.per_token:
        scale = (baseline.tokens or 1.0) / (candidate.tokens or 1.0)
    ratio = ratio_of(baseline.assessment, candidate.assessment, scale)
    assert ratio is not None  # checked in `_not_comparable`
    return replace(
        verdict,
        answer=ratio.answer,
        ratio=ratio.value,
        low=ratio.low,
        high=ratio.high,
        pairs=ratio.pairs,
        reason=ratio.reason,
    )


def _unusable(compared: Compared) -> str | None:
    """Return why a layout cannot run, as a clause with its name; None if it can, or if that is unknown."""
    if compared.assessment.rejected is not None:
        return f"JAX rejects {compared.name}: {compared.assessment.rejected}"
    need = compared.assessment.memory
    if need is not None and need.fits is False:
        chip = hardware.CHIPS.get(compared.assessment.chip or "")
        where = "the device" if chip is None else chip.title
        return f"{compared.name} does not fit into {where} ({need.text})"
    return None


def _of_usable(verdict: Verdict, baseline: Compared, candidate: Compared) -> Verdict:
    """Return the verdict without a ratio. A layout that can run is better than one that cannot.

    That holds for layouts of one model on one chip whose own figures say that the other one can run.
    """
    unusable = [_unusable(side) is not None for side in (baseline, candidate)]
    if unusable[0] == unusable[1] or other_model(baseline, candidate):
        return verdict
    usable = candidate if unusable[0] else baseline
    need = usable.assessment.memory
    if baseline.assessment.chip != candidate.assessment.chip or (
        need is not None and need.capacity_bytes is not None and need.fits is None
    ):
        return verdict
    return replace(verdict, answer="better" if usable is candidate else "worse")


def _same_instructions(baseline: Compared, candidate: Compared) -> bool:
    """Return whether one compiler made the same program of both, so that they are equal on any chip."""
    programs = [step_program(side.snapshot) for side in (baseline, candidate)]
    was, now = (None if program is None else program.fingerprint for program in programs)
    meshes = [side.snapshot.mesh for side in (baseline, candidate)]
    devices = [None if mesh is None else mesh.devices for mesh in meshes]
    return was is not None and was == now and devices[0] == devices[1]


def _not_comparable(baseline: Compared, candidate: Compared) -> str | None:
    """Return why no ratio of the steps says which layout is better; None if one does."""
    both = baseline, candidate
    reason = next((why for one in both if (why := _unusable(one))), None)
    reason = reason or other_model(baseline, candidate)
    if reason is None and _same_instructions(baseline, candidate):
        return _other_machines(baseline, candidate)
    return reason or _other_steps(baseline, candidate)


def other_model(baseline: Compared, candidate: Compared) -> str | None:
    """Return how the models of two layouts differ; None if they do not."""
    both = baseline.snapshot, candidate.snapshot
    models = [origin.model(side) for side in both]
    if None not in models:
        if models[0] != models[1]:
            return f"the models differ: {models[0]} and {models[1]}"
        other = _other_sizes(baseline, candidate)
        weights = [_weights(side) for side in both]
        if other and (None in weights or weights[0] != weights[1]):
            return f"the sizes of the model differ: {and_text(other)}"
        return None
    states = [
        {(array.path, array.shape) for array in side.arrays if array.group in STATE_GROUPS} for side in both
    ]
    if states[0] != states[1]:
        return "their train states differ"
    return None


def _other_sizes(baseline: Compared, candidate: Compared) -> list[str]:
    """Return the names of the sizes that differ, without those that only change the work of a step."""
    was, now = (origin.sizes(side.snapshot) or {} for side in (baseline, candidate))
    return [name for name in {**was, **now} if was.get(name) != now.get(name) and name not in _WORK_SIZES]


def _weights(snapshot: Snapshot) -> int | None:
    """Return the number of weights of a model; None if it is unknown.

    Layers that are scanned, rematerialized or computed in another type have the same weights, so these are
    layouts of one model.
    """
    return sum_known(array.elements for array in snapshot.arrays if array.group == "params")


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
        if "cpu" in (baseline.snapshot.source.kind, candidate.snapshot.source.kind):
            return (
                "their steps were measured in separate runs on emulated devices, which share this machine: "
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
        titles = [_chip_title(side.assessment) for side in (baseline, candidate)]
        return f"the chips differ: {and_text(titles)}"
    was, now = baseline.evidence, candidate.evidence
    if (was.stage, was.platform) != (now.stage, now.platform):
        return f"{baseline.name} is {was.text}; {candidate.name} is {now.text}"
    return None


def _unsure(compared: Compared) -> str | None:
    """Return why a predicted step is no basis for a verdict; None if it is."""
    step, program = compared.assessment.step, step_program(compared.snapshot)
    if step is not None and step.kind == "at least":
        return f"only a lower bound of the step of {compared.name} is known: {step.at_least}"
    outside = step is not None and step.outside is not None
    if step is None or (step.low is None and not outside):
        return f"{compared.name} was not compiled for this chip, so the interval of its step is unknown"
    if program is not None and compared.evidence.before_compile:
        work = program.work
        if work is None or work.boundary_bytes is None:
            return f"the memory traffic of {compared.name} is unknown before a compile"
    if not outside and ratio_interval(not compared.evidence.before_compile) is None:
        return "no two published runs of one model show how wrong a ratio can be"
    return None


def _other_work(baseline: Compared, candidate: Compared) -> bool:
    """Return whether only the batch or the sequence length of one model differs."""
    tokens = baseline.tokens, candidate.tokens
    same = origin.model(baseline.snapshot) == origin.model(candidate.snapshot) is not None
    return same and None not in tokens and tokens[0] != tokens[1]


def _sentence(verdict: Verdict, baseline: Compared, candidate: Compared) -> str:
    """Return the verdict in words: what cannot run, then time, then memory and traffic."""
    unusable = [why for side in (baseline, candidate) if (why := _unusable(side))]
    if unusable:
        usable = [side.name for side in (baseline, candidate) if _unusable(side) is None]
        rest = ""
        if usable:
            runs = verdict.answer in ("better", "worse")
            rest = f" {and_text(usable)} {'can run' if runs else 'can be compared with other layouts only'}."
        return f"{_capital('; '.join(unusable))}.{rest}"
    said = [_time_sentence(verdict, baseline, candidate)]
    equal = verdict.answer == "not distinguishable" and _same_instructions(baseline, candidate)
    if not equal and (verdict.answer != "not comparable" or other_model(baseline, candidate) is None):
        said += _need_sentence(verdict, baseline, candidate)
    return " ".join(said)


def _time_sentence(verdict: Verdict, baseline: Compared, candidate: Compared) -> str:
    if verdict.answer == "not comparable":
        return f"{verdict.baseline} and {verdict.candidate} are not comparable: {verdict.reason}."
    if verdict.ratio == 1 and _same_instructions(baseline, candidate):
        return f"{verdict.baseline} and {verdict.candidate} are equal: {verdict.reason}."
    before, after = baseline.assessment.step, candidate.assessment.step
    assert before is not None and after is not None and verdict.ratio is not None
    times = f"{seconds_text(before.seconds)} and {seconds_text(after.seconds)}"
    per = ""
    if verdict.per_token:
        unit = "token" if "seq" in (origin.sizes(baseline.snapshot) or {}) else "example"
        per = f" per {unit}, because the {_other_work_sizes(baseline, candidate)} differ"
        times = " and ".join(
            f"{seconds_text(step.seconds)} for {side.tokens or 0:,.0f} {unit}s"
            for side, step in ((baseline, before), (candidate, after))
        )
    ratio = f"ratio {verdict.ratio:.2f}"
    if verdict.low is not None and verdict.high is not None:
        ratio += f", {verdict.low:.2f} to {verdict.high:.2f}"
    if verdict.answer == "not distinguishable":
        why = f". {_capital(verdict.reason)}" if verdict.reason and not verdict.pairs else ""
        return (
            f"{verdict.baseline} and {verdict.candidate} are not distinguishable{per}: their steps take "
            f"{times} ({ratio}){why}."
        )
    if per:
        return (
            f"{verdict.candidate} is {verdict.answer} than {verdict.baseline}{per}: their steps take "
            f"{times} ({ratio})."
        )
    return (
        f"{verdict.candidate} is {verdict.answer} than {verdict.baseline}: its step takes "
        f"{seconds_text(after.seconds)} instead of {seconds_text(before.seconds)} ({ratio})."
    )


def _other_work_sizes(baseline: Compared, candidate: Compared) -> str:
    """Return what differs in the work of a step: `batches and sequence lengths`."""
    was, now = (origin.sizes(side.snapshot) or {} for side in (baseline, candidate))
    return and_text([words for name, words in _WORK_SIZES.items() if was.get(name) != now.get(name)])


def _need_sentence(verdict: Verdict, baseline: Compared, candidate: Compared) -> list[str]:
    """Return how memory and traffic of the candidate differ, in at most one sentence."""
    said = []
    was, now = baseline.assessment.memory, candidate.assessment.memory
    comparable = baseline.evidence == candidate.evidence
    if was is not None and now is not None and comparable:
        change = now.peak_bytes - was.peak_bytes
        if abs(change) > LEAST_CHANGE * was.peak_bytes:
            said.append(f"needs {bytes_text(abs(change))} {'more' if change > 0 else 'less'} memory")
        else:
            said.append("needs as much memory")
    sent, sends = baseline.assessment.traffic, candidate.assessment.traffic
    if sent is not None and sends is not None:
        scale = 1.0
        if verdict.per_token:
            scale = (baseline.tokens or 1.0) / (candidate.tokens or 1.0)
        said.append(_traffic_clause(sent.bytes, scale * sends.bytes, verdict.per_token))
    return [f"{verdict.candidate} {and_text(said)}."] if said else []


def _traffic_clause(before: float, after: float, per_token: bool) -> str:
    per = " per token" if per_token else ""
    if abs(after - before) <= LEAST_CHANGE * before:
        return f"sends as much{per}"
    if not before:
        return f"sends {bytes_text(round(after))}{per}"
    if not after:
        return f"sends nothing{per}"
    ratio = after / before
    if ratio >= 2:
        return f"sends {ratio:.2g} times as much{per}"
    return f"sends {abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}{per}"


def _chip_title(assessment: Assessment) -> str:
    chip = hardware.CHIPS.get(assessment.chip or "")
    return "devices of this machine" if chip is None else chip.title


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
