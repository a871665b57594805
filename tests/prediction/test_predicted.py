"""Intervals from residuals, and which programs have a prediction."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from inspector.machines.hardware import CHIPS
from inspector.prediction.predicted import (
    CLAIMED,
    ENOUGH_RUNS,
    before_compile,
    combined,
    interval,
    interval_of,
    predicted,
    predicted_in,
)
from inspector.prediction.step_model import modelled
from inspector.records.snapshot import (
    MatmulFlops,
    Mesh,
    MeshAxis,
    OpenChoice,
    Program,
    ScheduledOperation,
    Snapshot,
    Source,
    Work,
)
from tests.compare import glances
from tests.prediction.schedules import schedule


def test_few_runs_of_a_chip_use_those_of_all_chips_and_are_wider():
    found = [("v5e", 1.1), ("v5e", 0.9), *[("v5p", 1 + number / 100) for number in range(-5, 6)]]
    own, borrowed = interval(found, "v5p"), interval(found, "v5e")
    assert own is not None and borrowed is not None
    assert (own.runs, own.chip) == (11, "v5p")
    assert (borrowed.runs, borrowed.chip) == (13, None)
    assert borrowed.low < own.low and own.high < borrowed.high
    assert interval([], "v5e") is None


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("runs", [ENOUGH_RUNS, 9, 20, 60])
def test_a_new_run_is_inside_as_often_as_claimed(runs):
    random.seed(runs)
    inside, tries = 0, 2000
    for _ in range(tries):
        ratios = [random.lognormvariate(0.02, 0.1) for _ in range(runs + 1)]
        result = interval([("v5e", ratio) for ratio in ratios[:-1]], "v5e")
        assert result is not None
        inside += result.low <= ratios[-1] <= result.high
    # With five runs the ends are the smallest and the largest: 4 of 6 new runs are between them.
    least = min(CLAIMED, (runs - 1) / (runs + 1))
    assert inside / tries > least - 0.03


def program(*operations: ScheduledOperation) -> Program:
    return Program("step", schedule=schedule(*operations))


@pytest.mark.parametrize(
    ("kind", "known"),
    [("cpu", False), ("TPU v5 lite", True), ("TPU v4", True), ("NVIDIA H100 80GB HBM3", False)],
)
def test_a_program_for_another_kind_of_machine_has_no_time(kind, known):
    mesh = Mesh((MeshAxis("data", 2),), devices=(0, 1), device_kind=kind)
    result = predicted(
        program(ScheduledOperation("a", "fusion", cycles=10**9, flops=1.0)), mesh, CHIPS["v5e"]
    )
    assert (result.seconds is not None) == (result.record() is not None) == known
    assert bool(result.unknown) != known


def test_without_a_schedule_or_operations_the_step_is_unknown():
    mesh = Mesh((MeshAxis("data", 2),), devices=(0, 1), device_kind="cpu")
    for one in (Program("step"), Program("step", stage="propagated"), program()):
        result = predicted(one, mesh, CHIPS["v5e"])
        assert result.seconds is None and result.unknown and result.record() is None


def test_the_combination_is_the_value_with_the_least_errors():
    """The errors are logarithms, and count squared."""
    random.seed(7)
    for _ in range(20):
        schedule, partitioned = random.lognormvariate(0, 0.4), random.lognormvariate(0, 0.4)

        def error(one: float, first: float = schedule, second: float = partitioned) -> float:
            return math.log(one / first) ** 2 + math.log(one / second) ** 2

        best = min((math.exp(step / 2000) for step in range(-6000, 6001)), key=error)
        assert combined(schedule, partitioned) == pytest.approx(best, rel=1e-3)


MESH = Mesh((MeshAxis("data", 2),), devices=(0, 1), device_kind="TPU v5 lite")
SCHEDULED = Program(
    "train_step",
    stage="compiled",
    collectives=(),
    schedule=schedule(
        ScheduledOperation("a", "fusion", cycles=3 * 10**9, flops=1.0),
        ScheduledOperation("b", "fusion", cycles=10**9, bytes=10**12),
    ),
    work=Work(1e14, (MatmulFlops("bf16", 1e14),), 3e11),
)


def partitioned(flops: float) -> Program:
    work = Work(flops, (MatmulFlops("bf16", flops),), None, fused_bytes=0.0)
    return Program("train_step", stage="propagated", collectives=(), work=work)


def test_a_snapshot_with_both_programs_is_predicted_from_both():
    source = Source("tpu", "tpu:v5e:1x2", "2026-01-01T00:00:00Z", {})
    alone = Snapshot(source, None, MESH, (), programs=(SCHEDULED,))
    chip = CHIPS["v5e"]
    schedule_alone = predicted_in(alone, SCHEDULED, chip)
    assert schedule_alone == predicted(SCHEDULED, MESH, chip)
    for flops in (1e14, 4e14, 1e15):
        before = before_compile(partitioned(flops), MESH, chip).seconds
        both = replace(alone, partitioned=(partitioned(flops),))
        result = predicted_in(both, SCHEDULED, chip)
        assert result.seconds == pytest.approx(combined(schedule_alone.seconds, before))
        assert result.schedule_seconds == schedule_alone.seconds
        assert result.partitioned_seconds == before
        # What is shown of the schedule adds up to the prediction.
        assert result.totals.seconds == pytest.approx(result.seconds)
        assert max(span.end for span in result.simulated.spans) == pytest.approx(result.seconds)
        assert result.interval == interval_of("v5e")


def test_without_work_of_the_partitioned_program_the_schedule_counts_alone():
    source = Source("tpu", "tpu:v5e:1x2", "2026-01-01T00:00:00Z", {})
    bare = Program("train_step", stage="propagated", collectives=())
    both = Snapshot(source, None, MESH, (), programs=(SCHEDULED,), partitioned=(bare,))
    predicted = predicted_in(both, SCHEDULED, CHIPS["v5e"])
    assert predicted.seconds == predicted.schedule_seconds and predicted.partitioned_seconds is None
    assert predicted.interval == interval_of("v5e", "compiled")


@pytest.mark.parametrize("moved", [1e6, 1e12, 5e12, 1e13])
def test_no_prediction_is_below_the_lower_bound(moved):
    program = replace(SCHEDULED, work=replace(SCHEDULED.work, bytes_accessed=moved))
    chip = CHIPS["v5e"]
    bound = modelled(program, MESH, chip).lower_seconds
    for before in (None, partitioned(1e12)):
        result = predicted(program, MESH, chip, partitioned=before)
        assert result.seconds >= bound
        assert result.totals.seconds == pytest.approx(result.seconds)


def test_a_program_compiled_for_cpus_is_predicted_as_before_its_compile() -> None:
    plan = glances.planned(glances.sent(("data",), 1000), flops=1e15)
    compiled = replace(plan.programs[0], stage="run")
    emulated = replace(
        plan,
        source=replace(plan.source, kind="cpu", target="cpu"),
        programs=(compiled,),
        partitioned=plan.programs,
    )
    chip = CHIPS["v5e"]
    assert emulated.mesh is not None and emulated.mesh.device_kind in (None, "cpu")
    predicted = predicted_in(emulated, compiled, chip)
    assert predicted.seconds == before_compile(plan.programs[0], emulated.mesh, chip).seconds
    assert predicted.low is not None
    # Without the partitioned program, only the CPU's schedule is known, which has no interval.
    assert predicted_in(replace(emulated, partitioned=None), compiled, chip).low is None


@pytest.mark.parametrize("with_loop", [False, True])
def test_a_branch_that_depends_on_data_gives_a_lower_bound(with_loop: bool) -> None:
    """Of a compiled program, whose loops are bounded or absent."""
    mesh = Mesh((MeshAxis("data", 2),), devices=(0, 1), device_kind="TPU v5 lite")
    work = ScheduledOperation("a", "fusion", cycles=10**9, flops=1.0)
    branch = ScheduledOperation("b", "fusion", cycles=10**9, flops=1.0)
    conditional = ScheduledOperation("if.1", "conditional", runs=("taken",))
    choices = (OpenChoice("if.1", "conditional", branches=1),)
    if with_loop:
        choices += (OpenChoice("while.2", "loop", most=4),)
    unknown = Program("step", schedule=schedule(work, conditional, taken=(branch,)), open_choices=choices)
    result = predicted(unknown, mesh, CHIPS["v5e"])
    without = predicted(program(work), mesh, CHIPS["v5e"])
    assert result.at_least and any("if.1" in reason for reason in result.at_least)
    assert result.seconds is not None and without.seconds is not None
    assert result.seconds <= without.seconds and (result.most is None) == (not with_loop)
