"""Weights and limits of programs, against sums by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.machines.hardware import CHIPS
from inspector.records.assessment import Assessment, Step, StepTraffic
from inspector.search.order import Entry, Goal, best_of, goal_of, least_value, ranked, value
from inspector.search.result import Candidate, ProgramCost, together
from inspector.text.errors import InvalidInput

LAYOUT = layouts.parse(
    {"model": "transformer", "batch": "64", "cache": "128", "seq": "64", "prefill_batch": "4"}
).unwrap()
CHIP = CHIPS["v5e"]


def cost(decode: float, prefill: float, **known: object) -> Candidate:
    costs = {
        "decode": Candidate("propagated", seconds=decode, low=decode / 2, high=decode * 2, peak_bytes=5),
        "prefill": Candidate("propagated", seconds=prefill, low=prefill, high=prefill, peak_bytes=9),
    }
    return replace(together(costs, "decode"), fits=True, **known)


def test_a_round_serves_the_examples_of_a_decode_step() -> None:
    """64 requests: 16 prefills of 4 prompts, and 100 decode steps of all."""
    goal = Goal({"prefill": 1.0, "decode": 100.0})
    evaluated = goal.applied(cost(0.01, 0.2), LAYOUT)
    assert evaluated.seconds == pytest.approx(16 * 0.2 + 100 * 0.01)
    assert (evaluated.low, evaluated.high) == pytest.approx((16 * 0.2 + 0.5, 16 * 0.2 + 2.0))
    assert evaluated.peak_bytes == 9
    assert goal.tokens_per_second(evaluated, LAYOUT) == pytest.approx(64 * 100 / 4.2)


def test_a_decode_step_counts_alone_by_default() -> None:
    goal = goal_of(LAYOUT, CHIP)
    assert goal.weights == {"decode": 1.0, "prefill": 0.0}
    evaluated = goal.applied(cost(0.01, 0.2), LAYOUT)
    assert evaluated.seconds == 0.01 and evaluated.within is None
    assert goal.tokens_per_second(evaluated, LAYOUT) == pytest.approx(6400)
    assert goal_of(layouts.parse({"model": "transformer"}).unwrap(), CHIP) == Goal()


def assessed(program: str, seconds: float, sent: int, kind: str = "predicted") -> Candidate:
    step, traffic = Step(seconds, None, None, kind), StepTraffic(sent, {"data+tensor": sent})
    assessment = Assessment("v5e", 8, "partitioned", program, step, None, traffic, None, None)
    return Candidate("propagated", seconds=seconds, assessment=assessment)


def test_a_round_sends_what_the_runs_of_its_programs_send() -> None:
    costs = together(
        {"decode": assessed("decode", 0.01, 7), "prefill": assessed("prefill", 0.2, 100)}, "decode"
    )
    evaluated = Goal({"prefill": 1.0, "decode": 3.0}).applied(costs, LAYOUT)
    sent = 16 * 100 + 3 * 7
    assert evaluated.wire_bytes == {"data,tensor": sent} and value(evaluated, 1, "traffic") == sent
    assert evaluated.assessment is not None and evaluated.assessment.traffic == StepTraffic(
        sent, {"data+tensor": sent}
    )


def test_one_run_of_another_program_is_a_round() -> None:
    """As many prompts as sequences: a round is one prefill, whose time is not that of the decode step."""
    layout = replace(LAYOUT, sizes={**LAYOUT.sizes, "prefill_batch": 64})
    costs = together(
        {"decode": assessed("decode", 0.01, 7), "prefill": assessed("prefill", 0.2, 100)}, "decode"
    )
    evaluated = Goal({"prefill": 1.0, "decode": 0.0}).applied(costs, layout)
    assert evaluated.assessment is not None and evaluated.assessment.step is not None
    assert evaluated.seconds == evaluated.assessment.step.seconds == 0.2


def test_a_limit_that_is_not_known_to_be_kept_is_unknown() -> None:
    costs = together(
        {"decode": assessed("decode", 0.01, 7), "prefill": assessed("prefill", 0.2, 1, "at least")}, "decode"
    )

    def within(**limits: float) -> bool | None:
        return Goal({"decode": 1.0, "prefill": 0.0}, limits).applied(costs, LAYOUT).within

    assert within(decode=0.02) is True
    assert within(prefill=0.5) is within(decode=0.02, prefill=0.5) is within(prefill=0.5, decode=0.02) is None
    assert within(prefill=0.1) is within(decode=0.001, prefill=0.5) is False


def test_a_layout_above_a_limit_is_not_the_best() -> None:
    goal = goal_of(LAYOUT, CHIP, "decode=1", "prefill=100ms")
    assert goal.limits == {"prefill": pytest.approx(0.1)}
    fast, slow = goal.applied(cost(0.01, 0.2), LAYOUT), goal.applied(cost(0.02, 0.05), LAYOUT)
    assert (fast.within, slow.within) == (False, True)
    figures = [
        Entry(name, LAYOUT, 64.0, name, evaluated) for name, evaluated in (("fast", fast), ("slow", slow))
    ]
    assert [figure.key for figure in ranked(figures, "time")] == ["slow", "fast"]
    best = best_of(figures, "time")
    assert best is not None and best.key == "slow"
    assert best_of(figures[:1], "time") is None


def test_of_equal_decode_steps_the_one_with_the_shorter_prefill_comes_first() -> None:
    goal = goal_of(LAYOUT, CHIP)
    costs = {"a": goal.applied(cost(0.01, 0.2), LAYOUT), "b": goal.applied(cost(0.01, 0.1), LAYOUT)}
    figures = [Entry(name, LAYOUT, 64.0, name, evaluated) for name, evaluated in costs.items()]
    assert [figure.key for figure in ranked(figures, "time")] == ["b", "a"]


def test_a_bound_above_a_limit_excludes_a_layout() -> None:
    bounds = Candidate(
        "planned",
        at_least=0.01,
        programs=(ProgramCost("decode", at_least=0.01), ProgramCost("prefill", at_least=0.3)),
    )
    goal = Goal({"decode": 2.0, "prefill": 0.0}, {"prefill": 0.2})
    evaluated = goal.applied(bounds, LAYOUT)
    assert evaluated.at_least == pytest.approx(0.02)
    assert least_value(evaluated, 64.0, "time") == float("inf")
    loose = replace(goal, limits={"prefill": 0.4}).applied(bounds, LAYOUT)
    assert least_value(loose, 64.0, "time") == pytest.approx(0.02 / 64)


@pytest.mark.parametrize(
    ("weights", "limits"),
    [
        *((text, None) for text in ("train_step=1", "decode", "decode=-1", "decode=0", "decode=nan")),
        *((text, None) for text in ("decode=1,decode=2", "decode=1e99")),
        *((None, text) for text in ("decode=0s", "decode=5", "decode=5h")),
    ],
)
def test_malformed_goals_are_refused(weights: str | None, limits: str | None) -> None:
    with pytest.raises(InvalidInput, match=r"weights|limits"):
        goal_of(LAYOUT, CHIP, weights, limits)


def test_emulated_devices_measure_one_program() -> None:
    assert goal_of(LAYOUT, None) == Goal()
    with pytest.raises(InvalidInput, match="chip"):
        goal_of(LAYOUT, None, "decode=1")
