"""Constants are found again from runs that were made with them, and a model is left out of its own fit."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.accuracy import fitting
from benchmarks.accuracy.fitting import MeasuredProgram
from inspector.machines.hardware import CHIPS
from inspector.prediction.calibration import BeforeCompile, ChipConstants, default_constants
from inspector.prediction.collective_cost import START_SECONDS
from inspector.prediction.predicted import before_compile, predicted
from inspector.records.snapshot import (
    Collective,
    MatmulFlops,
    Mesh,
    MeshAxis,
    Program,
    ScheduledOperation,
    Work,
)
from tests.prediction.schedules import schedule

CHIP = CHIPS["v5e"]
MESH = Mesh((MeshAxis("data", 16),), devices=tuple(range(16)), device_kind="TPU v5 lite")


def program(cycles: int, kernel: float, payload: int, op: str = "all-gather") -> Program:
    """A product, a custom kernel and a collective, one after the other."""
    operations = (
        ScheduledOperation("p", "fusion", cycles=cycles, flops=1.0, bytes=8),
        ScheduledOperation("k", "custom-call", flops=kernel, bytes=8, dtype="bf16"),
        ScheduledOperation("r", op, collective=0),
    )
    collective = Collective(op, False, "r", "main", 1, False, ("data",), 16, 1, payload, payload)
    return Program(
        "train_step",
        collectives=(collective,),
        schedule=schedule(*operations),
        work=Work(kernel, (MatmulFlops("bf16", kernel),), 8.0),
    )


SHAPES = [(10**9, 1e13, 10**9), (10**8, 9e13, 10**9), (10**8, 1e13, 10**10), (10**9, 9e13, 10**10)]


def runs(constants: ChipConstants) -> list[MeasuredProgram]:
    measured_programs = []
    for number, shape in enumerate(SHAPES):
        result = program(*shape)
        seconds = predicted(result, MESH, CHIP, constants=constants).seconds
        assert seconds is not None
        measured_programs.append(
            MeasuredProgram(f"run {number}", f"model {number}", CHIP, result, MESH, seconds)
        )
    return measured_programs


@pytest.mark.parametrize("factor", [0.8, 1.1])
def test_the_factor_of_measured_runs_is_found(factor):
    constants = ChipConstants(compute_factor=factor)
    assert fitting.fitted(runs(constants), CHIP).compute_factor == pytest.approx(factor)


def test_a_model_is_predicted_without_its_own_runs():
    strange = runs(ChipConstants(compute_factor=0.8))
    last = strange[-1]
    strange[-1] = MeasuredProgram(last.name, last.model, CHIP, last.program, MESH, 10 * last.seconds)
    # The strange run does not change its own prediction.
    assert fitting.left_out(strange)[last.name] == pytest.approx(last.seconds, rel=0.15)
    assert fitting.fitted(strange[:1], CHIP) == default_constants(CHIP)


def test_shares_before_a_compile_are_found():
    result = BeforeCompile({"": 0.5}, exposed_share=0.3)
    measured = []
    for number, shape in enumerate(SHAPES):
        one = program(*shape)
        seconds = before_compile(one, MESH, CHIP, result).seconds
        assert seconds is not None
        measured.append(MeasuredProgram(f"run {number}", f"{number}", CHIP, one, MESH, seconds))
    terms = [run for run in map(fitting.partitioned_run, measured) if run is not None]
    fitted_before_compile = fitting.fitted_before_compile(terms)
    assert fitted_before_compile.of(CHIP) == pytest.approx(0.5, abs=0.03)
    assert fitted_before_compile.exposed_share == pytest.approx(0.3, abs=0.1)
    left_out = fitting.left_out_before_compile(terms)
    assert left_out.keys() == {run.name for run in terms}


def test_transfers_between_slices_count_in_full_before_a_compile():
    flops, payload = 1e15, 10**9
    result = program(1, flops, payload, "all-reduce")
    alone, apart = BeforeCompile({"": 0.5}, 0.0), CHIP.dcn_bytes_per_second
    within = before_compile(result, MESH, CHIP, alone).seconds
    two = dataclasses.replace(MESH, slice_index=(0,) * 8 + (1,) * 8)
    between = before_compile(result, two, CHIP, alone).seconds
    assert within is not None and between is not None and apart is not None
    # Each of 8 devices of a slice sends half of its eighth, reduced, and receives the other half.
    sent = 2 * payload / 8 / 2 / apart / 0.33
    terms = [
        fitting.partitioned_run(MeasuredProgram("run", "model", CHIP, result, mesh, 1.0))
        for mesh in (MESH, two)
    ]
    assert terms[0] is not None and terms[1] is not None and terms[0].between_slices == 0
    assert terms[1].between_slices == pytest.approx(START_SECONDS + sent)
    # Sums inside of a slice are exposed in full, too.
    inside = terms[1].summed - terms[0].summed
    assert between - within == pytest.approx(START_SECONDS + sent + inside)


def test_mixtures_of_experts_do_not_change_the_constants():
    result = BeforeCompile({"": 0.5}, exposed_share=0.3)
    terms = []
    for number, shape in enumerate(SHAPES):
        one = program(*shape)
        seconds = before_compile(one, MESH, CHIP, result).seconds
        assert seconds is not None
        run = MeasuredProgram(f"run {number}", f"{number}", CHIP, one, MESH, seconds)
        slow = dataclasses.replace(run, name=f"mixture {number}", seconds=2 * seconds, mixture=True)
        terms += [fitting.partitioned_run(run), fitting.partitioned_run(slow)]
    dense = [run for run in terms if run is not None and not run.mixture]
    assert len(dense) == len(SHAPES) == len(terms) / 2
    assert fitting.fitted_before_compile(terms) == fitting.fitted_before_compile(dense)
