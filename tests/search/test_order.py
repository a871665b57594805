"""Order, Pareto front and stop of a search, against brute force."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.records.assessment import Assessment, Step, StepPart
from inspector.search.order import (
    Entry,
    best_of,
    can_be_best,
    next_to_compile,
    pareto,
    ranked,
    scaled_to_measured,
    value,
)
from inspector.search.result import Candidate, of_assessment

LAYOUT = layouts.parse({}).unwrap()

seconds = st.floats(1e-6, 1e3)
sizes = st.integers(1, 2**40)


def partitioned(number: float, state: int = 1) -> Candidate:
    return Candidate("propagated", seconds=number, low=number * 0.8, high=number * 1.3, state_bytes=state)


def compiled(number: float, peak: int = 1, fits: bool | None = True) -> Candidate:
    return Candidate("compiled", seconds=number, peak_bytes=peak, state_bytes=1, fits=fits)


def figure(key: str, before: Candidate | None, after: Candidate | None = None, same: str = ""):
    return Entry(key, LAYOUT, 1.0, same or key, before, after)


@st.composite
def figures(draw) -> list[Entry]:
    found = []
    for number in range(draw(st.integers(1, 12))):
        before = draw(
            st.one_of(
                st.builds(partitioned, seconds, sizes), st.just(Candidate("rejected", "it does not divide"))
            )
        )
        after = None
        if before.stage == "propagated":
            after = draw(st.one_of(st.none(), st.builds(compiled, seconds, sizes, st.booleans())))
        found.append(figure(str(number), before, after))
    return found


@given(figures())
@settings(deadline=None)
def test_the_front_has_every_candidate_that_no_other_beats_in_both(found):
    fits = [one for one in found if one.compiled and one.compiled.fits is not False]
    chosen = fits or [one for one in found if one.cost and one.cost.stage != "rejected"]
    points = {
        one.key: (value(one.cost, 1, "time"), value(one.cost, 1, "memory")) for one in chosen if one.cost
    }
    front = pareto(found)
    for key, (time, memory) in points.items():
        beaten = any(
            other != key and t <= time and m <= memory and (t, m) != (time, memory)
            for other, (t, m) in points.items()
        )
        if front[key]:
            assert not beaten
        else:
            assert beaten or (time, memory) in [points[point] for point in points if front[point]]


def test_the_front_does_not_know_what_was_not_partitioned():
    bound = Candidate("planned", at_least=2.0, state_bytes=10)
    known = [figure("a", partitioned(1.0, state=20)), figure("b", partitioned(3.0, state=5))]
    assert pareto([*known, figure("c", bound)]) == {"a": True, "b": True, "c": None}
    # A candidate that takes no longer, and needs no more, beats the bounds.
    known.append(figure("d", partitioned(2.0, state=10)))
    assert pareto([*known, figure("c", bound)])["c"] is False


def test_without_a_compile_the_best_is_one_that_probably_fits():
    large = figure("a", replace(partitioned(1.0), fits=False))
    unsure, fitting = figure("b", partitioned(2.0)), figure("c", replace(partitioned(3.0), fits=True))
    planned = figure("d", Candidate("planned", at_least=0.1))
    every = [planned, large, fitting, unsure]
    assert [each.key for each in ranked(every, "time")] == ["b", "c", "a", "d"]
    best = best_of(every, "time")
    assert best is not None and best.key == "c"
    assert best_of([planned, large, unsure], "time") is None


def test_what_was_not_partitioned_cannot_be_the_best_above_any_efficiency():
    best = predicted("a", 1.0, 1.0, 2.0)
    bounds = [figure(f"{n}", Candidate("planned", at_least=n)) for n in (1.0, 2.5, 1000.0)]
    assert [one.key for one in can_be_best([best, *bounds], "time", "planned")] == ["1.0", "2.5"]
    # A step with twice the examples may take twice as long.
    twice = replace(figure("d", Candidate("planned", at_least=1000.0)), examples=1000.0)
    assert can_be_best([best, twice], "time", "planned") == [twice]
    assert can_be_best([predicted("a", 1.0, 1.0), *bounds], "time", "planned")[-1].key == "1000.0"
    # The state is a bound of the memory.
    small, large = (figure(f"{n}", Candidate("planned", state_bytes=n)) for n in (1, 4))
    done = figure("a", partitioned(1.0), compiled(1.0, peak=2))
    assert can_be_best([done, small, large], "memory", "planned") == [small]


@given(figures())
@settings(deadline=None)
def test_the_best_is_the_fastest_compiled_one_that_fits(found):
    fits = [one.compiled.seconds for one in found if one.compiled and one.compiled.fits]
    best = best_of(found, "time")
    if not fits:
        assert best is None or best.compiled is None
    else:
        assert best is not None and best.compiled is not None
        assert best.compiled.seconds == min(fits)
        assert ranked(found, "time")[0].key == best.key


@given(figures(), st.integers(1, 5))
@settings(deadline=None)
def test_only_candidates_that_can_be_better_are_compiled(found, most):
    best = best_of(found, "time")
    chosen = next_to_compile(found, "time", None, most)
    assert len(chosen) <= most
    for one in chosen:
        assert one.compiled is None and one.partitioned is not None
        assert one.partitioned.stage == "propagated"
    waiting = [one for one in found if one.partitioned.stage == "propagated" and not one.compiled]
    if best is None:
        assert len(chosen) == min(most, len(waiting))


def test_what_probably_does_not_fit_is_compiled_last():
    too_large = figure("a", partitioned(1.0, state=10), compiled(1.0, 120, fits=False), "same")
    like_it = figure("b", partitioned(1.0, state=20), None, "same")
    other = figure("c", partitioned(1.5, state=20), None, "another")
    assert [one.key for one in next_to_compile([too_large, like_it, other], "time", 100, 5)] == [
        "c",
        "b",
    ]


def test_time_is_compared_for_each_example():
    small = Entry("small", LAYOUT, 8.0, "", partitioned(1.0))
    large = Entry("large", LAYOUT, 16.0, "", partitioned(1.5))
    assert [figure.key for figure in ranked([small, large], "time")] == ["large", "small"]
    assert math.isinf(value(Candidate("propagated"), 1.0, "time"))


def test_estimates_for_emulated_devices_are_scaled_to_measured_steps():
    def measured(number: float) -> Candidate:
        return replace(compiled(number), measured=number)

    estimate = Candidate("propagated", seconds=0.5, state_bytes=1)
    done = [figure(str(n), partitioned(1.0), measured(each)) for n, each in enumerate((2.0, 8.0))]
    assert scaled_to_measured([figure("x", estimate)])[0].partitioned == estimate
    (*_, other) = scaled_to_measured([*done, figure("x", estimate)])
    # Twice and eight times as long as estimated: four times on average.
    assert math.isclose(other.cost.seconds, 4 * 0.5)
    assert [one.compiled for one in scaled_to_measured(done)] == [one.compiled for one in done]


def predicted(key: str, hbm: float, sent: float, after: float | None = None) -> Entry:
    """A candidate with a step of these seconds before a compile, and `after` as compiled."""
    parts = StepPart("memory", hbm), StepPart("inside", sent, "fsdp")
    step = Step(hbm + sent, 1e-9, 1e9, "predicted", outside="it is short", parts=parts)
    own = Assessment("v5e", 8, "partitioned", "train_step", step, None, None, None, None)
    done = None if after is None else replace(compiled(after, 1, True), fits=True)
    return figure(key, replace(of_assessment(own, "propagated", 1), fits=True), done)


def test_a_candidate_that_is_worse_before_a_compile_is_not_compiled():
    # Whatever the chip reaches, the second takes longer. The third sends less than the first, but reads more.
    best, worse, trade = predicted("a", 1.0, 1.0, 2.0), predicted("b", 2.0, 2.0), predicted("c", 1.6, 0.3)
    assert next_to_compile([best, worse, trade], "time", None, 8) == [trade]
    assert next_to_compile([best, worse, trade], "time", None, 8, everything=True) == [trade, worse]
