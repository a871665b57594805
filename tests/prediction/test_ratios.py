"""The ratio of two steps: common efficiencies, less of everything, and what decides a trade."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inspector.compare.ratio import of_needs, ratio_of
from inspector.machines.hardware import CHIPS
from inspector.prediction.ratios import KINDS, Needs, box, common, decider
from inspector.records.assessment import Assessment, PartKind, Step, StepPart

WORK, SENT = ("products", "hbm", "kernels"), ("inside", "between", "starts")
SECONDS = st.one_of(st.just(0.0), st.floats(1e-6, 10.0))


@st.composite
def steps(draw: st.DrawFn) -> tuple[StepPart, ...]:
    kinds: tuple[PartKind, ...] = ("compute", "memory", "inside", "between", "rest")
    parts = []
    for kind in kinds:
        seconds, hidden = draw(SECONDS), draw(SECONDS) if kind in ("inside", "between") else 0.0
        latency = draw(st.floats(0.0, 1.0)) * (seconds + hidden)
        parts.append(
            StepPart(kind, seconds, hidden=hidden, messages=2, latency=latency * (kind != "compute"))
        )
    assume(sum(part.seconds for part in parts) > 1e-5)
    return tuple(parts)


def seconds(needs: Needs, efficiencies: dict[str, float], exposed: float) -> float:
    """Return the seconds of a step of which a share of the communication does not overlap with work."""
    work = sum(needs.whole[kind] * efficiencies[kind] for kind in WORK)
    sent = sum(needs.whole[kind] * efficiencies[kind] for kind in SENT)
    return exposed * (work + sent) + (1 - exposed) * max(work, sent)


@given(st.data(), steps(), steps(), st.floats(0, 1), st.sampled_from(["v5e", "tpu7x", "h100", "a100", "v3"]))
def test_whatever_the_common_efficiencies_are_the_ratio_is_inside(data, first, second, exposed, chip) -> None:
    ends, was, now = box(chip), Needs.of(first), Needs.of(second)
    low, high = common(was, now, ends)
    efficiencies = {kind: data.draw(st.floats(*ends[kind]), kind) for kind in KINDS}
    ratio = seconds(now, efficiencies, exposed) / seconds(was, efficiencies, exposed)
    assert low * (1 - 1e-9) <= ratio <= high * (1 + 1e-9)
    assert low * (1 - 1e-9) <= now.seconds / was.seconds <= high * (1 + 1e-9)


@given(steps(), steps(), st.sampled_from(list(CHIPS)))
def test_the_other_way_round_the_ratio_is_the_inverse(first, second, chip) -> None:
    was, now, value = Needs.of(first), Needs.of(second), math.nan
    value = now.seconds / was.seconds
    assume(not 0.98 < value < 1.03)  # around the smallest difference, rounding decides
    there, back = of_needs(value, was, now, chip, None), of_needs(1 / value, now, was, chip, None)
    assert there.low * back.high == pytest.approx(1) and there.high * back.low == pytest.approx(1)
    assert back.answer == {"better": "worse", "worse": "better"}.get(there.answer, there.answer)


@given(steps(), st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5), st.sampled_from(list(CHIPS)))
def test_less_of_everything_is_never_worse(parts, shares, chip) -> None:
    less = tuple(
        replace(part, seconds=share * part.seconds, hidden=share * part.hidden, latency=share * part.latency)
        for part, share in zip(parts, shares, strict=True)
    )
    was, now = Needs.of(parts), Needs.of(less)
    assume(now.seconds > 1e-6)
    value = now.seconds / was.seconds
    there, back = of_needs(value, was, now, chip, None), of_needs(1 / value, now, was, chip, None)
    expected = ("better", "worse") if value < 0.99 else ("not distinguishable",) * 2
    assert (there.answer, back.answer) == expected
    assert there.high <= 1 + 1e-9 and back.low >= 1 - 1e-9
    if value < 0.99:
        assert there.reason == back.reason == "less of everything"


def test_a_step_is_not_distinguishable_from_itself() -> None:
    needs = Needs.of((StepPart("compute", 1.0), StepPart("inside", 2.0, latency=0.1)))
    ratio = of_needs(1.0, needs, needs, "v5e", None)
    assert (ratio.answer, ratio.low, ratio.high) == ("not distinguishable", 1.0, 1.0)


def test_a_trade_names_the_start_of_collectives_that_decides_it() -> None:
    # Ten starts of 10 µs against 100 µs more of HBM.
    was = Needs.of((StepPart("memory", 300e-6), StepPart("inside", 10e-6, latency=0.0, messages=1)))
    now = Needs.of((StepPart("memory", 200e-6), StepPart("inside", 90e-6, latency=80e-6, messages=9)))
    ratio = of_needs(now.seconds / was.seconds, was, now, "v5e", None)
    assert ratio.answer == "not distinguishable" and ratio.decider is not None
    found = decider(was, now, {kind: (0.1, 10.0) if kind == "starts" else (0.999, 1.001) for kind in KINDS})
    assert found is not None and found.candidate
    # Ten collectives take 80 µs as predicted. With 100 µs instead, both steps are equally long.
    assert found.condition == "a collective starts in less than 10.0 µs"


@given(steps(), steps(), st.sampled_from(list(CHIPS)))
def test_at_the_condition_of_a_trade_both_steps_are_equal(first, second, chip) -> None:
    """The layout that needs more of the part in the condition is better below it."""
    was, now = Needs.of(first), Needs.of(second)
    more = {kind: now.exposed[kind] - was.exposed[kind] for kind in KINDS}
    assume(abs(sum(more.values())) > 0.01 * was.seconds)
    found = decider(was, now, box(chip))
    # What is as long as needed to make up for all the others is possible only if it has not their sign.
    possible = {kind: 1 - sum(more.values()) / own for kind, own in more.items() if own}
    if found is None:
        assert all(times <= 0 or math.isinf(times) for times in possible.values())
    elif "predicted" in found.condition:
        times = float(found.condition.split("less than ")[1].split()[0])
        kinds = [kind for kind, at in possible.items() if at == pytest.approx(times, rel=0.06)]
        assert any((more[kind] > 0) == found.candidate for kind in kinds)


def test_a_trade_that_no_single_efficiency_decides_names_the_nearest() -> None:
    # 25 µs more of starts against 19 µs less of everything else: starts must be 1.76 times as long.
    was = Needs.of((StepPart("memory", 100e-6), StepPart("inside", 60e-6, latency=50e-6, messages=5)))
    now = Needs.of((StepPart("memory", 66e-6), StepPart("inside", 75e-6, latency=75e-6, messages=5)))
    found = decider(was, now, dict.fromkeys(KINDS, (0.99, 1.01)))
    assert found == ("a collective starts in less than 22.0 µs", True)


def test_steps_without_parts_or_published_pairs_have_no_interval() -> None:
    step = Step(1.0, 0.5, 2.0, "predicted", outside="it is short")
    one = Assessment("v5e", 8, "partitioned", "train_step", step, None, None, None, None)
    ratio = ratio_of(one, replace(one, step=replace(step, seconds=9.0)))
    assert ratio is not None and (ratio.answer, ratio.low) == ("not distinguishable", None)
