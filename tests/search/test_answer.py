"""The answer of a search: which layouts cannot be told apart from the best one, and what others cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.compare.ratio import change_of
from inspector.prediction.ratios import published
from inspector.records.assessment import Assessment, MemoryNeed, Stage, Step, StepPart
from inspector.search.answer import answer_of, answer_text, round_of
from inspector.search.result import Candidate, Counts, Objective, ProgramCost, SearchResult

FACTOR = published(compiled=False).factor  # type: ignore[union-attr]


def candidate(mesh: str, axes: str, seconds: float, stage: str = "propagated", **fields: object) -> Candidate:
    """Return a candidate whose step is predicted with an interval, or one with a bound alone."""
    rules = "batch=" + axes.split(",")[0]
    layout = layouts.parse({"model": "transformer", "mesh": mesh, "axes": axes, "rules": rules})
    plain = layout.unwrap().to_json()
    if stage == "planned":
        return Candidate("planned", at_least=seconds, layout=plain)
    basis: Stage = "partitioned" if stage == "propagated" else "compiled"
    step = fields.pop("step", None) or Step(seconds, seconds * 0.8, seconds * 1.2, "predicted")
    assessment = Assessment("v5e", 8, basis, "train_step", step, None, None, None, None)
    return Candidate(stage, fits=True, seconds=seconds, layout=plain, assessment=assessment, **fields)


def found(*candidates: Candidate, objective: Objective = "time", best: int | None = 0) -> SearchResult:
    return SearchResult("tpu:v5e:2x4", "v5e", "now", Counts(), candidates, best, objective)


BEST = candidate("8", "fsdp", 1.0)


def test_no_answer_without_a_layout_that_fits():
    assert answer_of(found(BEST, best=None)) is None and answer_text(found(BEST, best=None)) is None


@pytest.mark.parametrize("times", [FACTOR * 0.99, FACTOR * 1.01])
def test_layouts_within_the_interval_of_a_ratio_cannot_be_told_apart(times):
    near = candidate("4x2", "fsdp,tensor", times)
    answer = answer_of(found(BEST, near))
    assert answer is not None and answer.more == 0
    assert answer.alike == ((near,) if times < FACTOR else ())
    words = answer_text(found(BEST, near)) or ""
    assert ("1 other layout cannot be told apart" in words) == (times < FACTOR)


@pytest.mark.parametrize("times", [FACTOR * 0.99, FACTOR * 1.01])
def test_layouts_that_were_not_partitioned_may_be_among_them_if_their_bounds_allow_it(times):
    near, excluded = candidate("4x2", "fsdp,tensor", 1.01), candidate("8", "data", times, "planned")
    answer = answer_of(found(BEST, near, excluded))
    assert answer is not None and answer.alike == (near,)
    assert answer.more == (times < FACTOR)
    assert ("At least 1" in (answer_text(found(BEST, near, excluded)) or "")) == (times < FACTOR)


def test_a_step_shorter_than_published_ones_is_told_apart_by_what_both_need():
    def short(hbm: float, sent: float) -> Step:
        parts = StepPart("memory", hbm), StepPart("inside", sent, "fsdp")
        return Step(hbm + sent, 1e-3, 1e3, "predicted", outside="it is short", parts=parts)

    best = candidate("8", "fsdp", 1.0, step=short(0.5, 0.5))
    trade = candidate("2x4", "fsdp,tensor", 1.1, step=short(0.2, 0.9))
    longer = candidate("4x2", "fsdp,tensor", 9.0, step=short(4.0, 5.0))
    bounds = [candidate("8", "data", seconds, "planned") for seconds in (2.0, 100.0)]
    answer = answer_of(found(best, trade, longer, *bounds))
    # Of the last two only bounds of the prediction are known: the step is at one efficiency of each kind.
    assert answer is not None and answer.alike == (trade,) and answer.more == 1


def test_other_ways_are_the_fastest_layouts_with_another_largest_axis():
    tensor = candidate("2x4", "fsdp,tensor", 3.0)
    slower = candidate("8", "tensor", 4.0)
    equal = candidate("2x2x2", "fsdp,tensor,data", 2.0)  # no axis is the largest
    bound = candidate("8", "context", 2.5, "planned")  # the ratio of a bound has no interval
    answer = answer_of(found(BEST, equal, tensor, slower, bound))
    assert answer is not None
    ((other, axis, ratio),) = answer.others
    assert (other, axis, ratio.value) == (tensor, "tensor", 3.0) and 1 < ratio.low < 3 < ratio.high
    words = answer_text(found(BEST, equal, tensor, slower, bound)) or ""
    assert "`tensor` (fsdp 2 × tensor 4)" in words and change_of(ratio) in words


def test_layouts_are_compared_at_the_same_stage():
    best, near = candidate("8", "fsdp", 1.0, "compiled"), candidate("4x2", "fsdp,tensor", 1.001, "compiled")
    partitioned = candidate("2x4", "fsdp,tensor", 1.0)
    answer = answer_of(found(best, near, partitioned))
    assert answer is not None and answer.alike == (near,)
    # With its figures before the compile, the best one is compared with those that were only partitioned.
    best = replace(best, before=candidate("8", "fsdp", 1.002).assessment)
    answer = answer_of(found(best, near, partitioned))
    assert answer is not None and answer.alike == (near, partitioned)


def test_a_layout_above_the_memory_of_the_device_is_not_among_them():
    near = candidate("4x2", "fsdp,tensor", 1.001)
    for peak, count in ((2**30, 1), (2**40, 0)):
        need = MemoryNeed(peak, peak // 2, 2 * peak, 2**34, None)
        other = replace(near, assessment=replace(near.assessment, memory=need))
        answer = answer_of(found(BEST, other))
        assert answer is not None and len(answer.alike) == count


@pytest.mark.parametrize("objective", ["memory", "traffic"])
def test_another_objective_does_not_compare_steps(objective):
    words = answer_text(found(BEST, candidate("4x2", "fsdp,tensor", 1.0), objective=objective)) or ""
    assert "fsdp 8" in words and "told apart" not in words


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ({}, "a step"),
        ({"train_step": 1.0, "apply": 0.0}, "a step"),
        ({"train_step": 2.0}, "a round"),
        ({"apply": 1.0, "train_step": 0.0}, "a round"),
    ],
)
def test_a_step_is_one_run_of_the_program_of_a_step(weights: dict[str, float], name: str) -> None:
    assert round_of(replace(found(BEST), weights=weights)) == name


def test_a_layout_whose_program_has_only_a_bound_does_not_count_as_above_a_limit() -> None:
    bound = Assessment(
        *("v5e", 8, "partitioned", "apply", Step(0.1, None, None, "at least")), *(None, None, None, None)
    )
    programs = (
        ProgramCost("apply", 0.1),
        ProgramCost("apply", 0.9),
        ProgramCost("apply", 0.1, assessment=bound),
        ProgramCost("apply"),
    )
    every = [replace(BEST, programs=(program,)) for program in programs]
    result = replace(found(*every), weights={"train_step": 1.0, "apply": 0.0}, limits={"apply": 0.5})
    assert "1 of 4 known layouts take longer, and of 2 it is unknown" in (answer_text(result) or "")
