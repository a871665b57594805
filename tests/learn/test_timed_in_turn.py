"""Tests of layouts that run in turn in one process."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.compare import paired_times
from inspector.compare.paired_times import PROGRAMS, PairedTimes, Untimed
from inspector.layout import Layout
from inspector.learn import time_together
from inspector.text.errors import Cancelled, InvalidInput

SMALL = {"batch": "8", "layers": "1", "depth": "16"}
ROUNDS = 6


def parsed(**fields: str) -> Layout:
    return layouts.parse(SMALL | fields).unwrap()


def silent(*_: object, **__: object) -> None:
    pass


@pytest.fixture(scope="module")
def reports() -> list[tuple[str, dict]]:
    return []


@pytest.fixture(scope="module")
def times(reports: list) -> PairedTimes:
    # The parser would refuse the two layouts in the middle.
    uneven = replace(parsed(mesh="2x4"), sizes=dict(parsed().sizes) | {"depth": 18})
    wrong = replace(parsed(mesh="2x2"), model="moe")
    wanted = {2: parsed(mesh="2x4"), 0: parsed(mesh="2x1", donate="true"), 3: uneven, 4: wrong}
    return time_together.time_layouts(
        wanted,
        ROUNDS,
        lambda phase, **figures: reports.append((phase, figures)),
        untimed=(Untimed(1, "its target is tpu"),),
    )


def test_runs_alternate_and_the_first_layout_changes(times: PairedTimes) -> None:
    assert times.timed == (0, 2)
    turns = [(turn.round, turn.program) for turn in times.turns]
    # In each round and program, the layouts run directly after each other.
    assert turns == [(n, p) for n in range(ROUNDS) for p in PROGRAMS for _ in range(2)]
    for _, group in itertools.groupby(times.turns, lambda turn: (turn.round, turn.program)):
        assert sorted(turn.layout for turn in group) == [0, 2]
    first = [turn.layout for turn in times.turns[:: 2 * len(PROGRAMS)]]
    assert sorted(first) == [0] * (ROUNDS // 2) + [2] * (ROUNDS // 2)
    assert all(turn.seconds > 0 for turn in times.turns)
    assert times.devices >= 8 and times.layouts == 5 and times.versions["jax"]


def test_the_record_is_read_back_and_has_ratios(times: PairedTimes) -> None:
    assert paired_times.from_json(times.to_json()) == times
    for program in PROGRAMS:
        ratios = paired_times.ratios(times, 0, program)
        assert list(ratios) == [2] and ratios[2].low <= ratios[2].value <= ratios[2].high


def test_a_layout_that_fails_is_left_out_with_the_reason(times: PairedTimes) -> None:
    reasons = {untimed.layout: untimed.reason for untimed in times.untimed}
    assert reasons[1] == "its target is tpu"
    assert "18" in reasons[3] and "divisible" in reasons[3]
    assert "JAX raises" in reasons[4]
    assert 0 not in reasons


def test_phases_and_rounds_are_reported(times: PairedTimes, reports: list) -> None:
    phases = [phase for phase, _ in itertools.groupby(reports, lambda report: report[0])]
    assert phases[-2:] == ["warm up", "rounds"]
    rounds = [figures["done"] for phase, figures in reports if phase == "rounds"]
    assert rounds == list(range(ROUNDS))
    assert {figures["of"] for phase, figures in reports if phase == "compile"} == {4}


def test_too_little_memory_is_refused() -> None:
    wanted = {0: parsed(mesh="2x1"), 1: parsed(mesh="1x2")}
    phases: list[str] = []
    with pytest.raises(InvalidInput, match=r"at least two layouts .*needs about"):
        time_together.time_layouts(wanted, ROUNDS, lambda phase, **_: phases.append(phase), memory=10_000)
    assert "first run" not in phases


def test_cancelling_stops_at_the_next_report() -> None:
    def cancel(phase: str, **_: object) -> None:
        if phase == "lower":
            raise Cancelled

    with pytest.raises(Cancelled):
        time_together.time_layouts({0: parsed(), 1: parsed()}, ROUNDS, cancel)
