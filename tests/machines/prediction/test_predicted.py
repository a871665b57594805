"""Intervals from residuals, and which programs have a prediction."""

from __future__ import annotations

import random

import pytest

from inspector.core.snapshot import (
    Mesh,
    MeshAxis,
    Program,
    ScheduledOperation,
)
from inspector.machines.hardware import CHIPS
from inspector.machines.prediction.predicted import (
    CLAIMED,
    ENOUGH_RUNS,
    interval,
    predicted,
)
from tests.machines.prediction.schedules import schedule


def test_few_runs_of_a_chip_use_those_of_all_chips_and_are_wider():
    found = [("v5e", 1.1), ("v5e", 0.9), *[("v5p", 1 + number / 100) for number in range(-5, 6)]]
    own, borrowed = interval(found, "v5p"), interval(found, "v5e")
    assert own is not None and borrowed is not None
    assert (own.runs, own.chip) == (11, "v5p")
    assert (borrowed.runs, borrowed.chip) == (13, None)
    assert borrowed.low < own.low and own.high < borrowed.high
    assert interval([], "v5e") is None


@pytest.mark.parametrize("runs", [ENOUGH_RUNS, 9, 20, 60])
def test_a_new_run_is_inside_as_often_as_claimed(runs):
    random.seed(runs)
    inside, tries = 0, 2000
    for _ in range(tries):
        ratios = [random.lognormvariate(0.02, 0.1) for _ in range(runs + 1)]
        found = interval([("v5e", ratio) for ratio in ratios[:-1]], "v5e")
        assert found is not None
        inside += found.low <= ratios[-1] <= found.high
    # With five runs the ends are the smallest and the largest: 4 of 6 new runs are between them.
    least = min(CLAIMED, (runs - 1) / (runs + 1))
    assert inside / tries > least - 0.03


def program(*operations: ScheduledOperation) -> Program:
    return Program("step", schedule=schedule(*operations))


@pytest.mark.parametrize(
    ("kind", "compiled_for"),
    [("cpu", "CPUs"), ("TPU v5 lite", ""), ("TPU v4", ""), ("NVIDIA H100 80GB HBM3", "GPUs")],
)
def test_a_program_for_another_kind_of_machine_has_no_interval(kind, compiled_for):
    mesh = Mesh((MeshAxis("data", 2),), devices=(0, 1), device_kind=kind)
    found = predicted(
        program(ScheduledOperation("a", "fusion", cycles=1500, flops=1.0)), mesh, CHIPS["v5e"]
    )
    assert found.seconds is not None and found.compiled_for == compiled_for
    assert (found.interval is None) == (found.record() is None) == bool(compiled_for)


def test_without_a_schedule_or_operations_the_step_is_unknown():
    mesh = Mesh((MeshAxis("data", 2),), devices=(0, 1), device_kind="cpu")
    for one in (Program("step"), Program("step", stage="propagated"), program()):
        found = predicted(one, mesh, CHIPS["v5e"])
        assert found.seconds is None and found.unknown and found.record() is None
