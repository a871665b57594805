"""What figures rest on: a program counts on a chip only as it was made for that kind of machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.assessment import assess
from inspector.compare.compared import compared
from inspector.compare.verdict import verdict
from inspector.machines import hardware
from inspector.prediction.evidence import HOST_MOVES, evidence_of, evidence_on, for_chip
from inspector.records.snapshot import Memory, Program, ProgramArray, Seconds, Snapshot, Source
from tests.compare.glances import compiled, planned, sent
from tests.figures import samples

V5E, H100 = hardware.chip("v5e"), hardware.chip("h100")


def partitioned(wire: int, platform: str | None) -> Program:
    (program,) = planned(sent(("data",), wire)).programs
    return replace(program, stage="partitioned", platform=platform)


def emulated(*beside: Program) -> Snapshot:
    """A step that ran on emulated devices, with partitioned ones beside it."""
    (program,) = planned(sent(("data",), 100)).programs
    memory = Memory(10, 10, 0, 10**9, 0)
    ran = replace(program, stage="run", memory=memory, seconds=Seconds(steps=(1.0, 2.0, 3.0)))
    snapshot = replace(samples.snapshot(), source=Source("cpu", "cpu", "now"), programs=(ran,))
    return replace(snapshot, partitioned=beside or None)


def test_a_run_on_emulated_devices_is_measured_without_a_chip() -> None:
    assessment = assess(emulated(partitioned(7, "tpu")))
    assert (assessment.evidence.stage, assessment.evidence.platform, assessment.evidence.chip) == (
        *("measured", "cpu"),
        None,
    )
    assert assessment.traffic.bytes == 300


@pytest.mark.parametrize(("chip", "wire"), [(V5E, 7), (H100, 9)])
def test_on_a_chip_it_counts_as_partitioned_for_that_machine(chip, wire: int) -> None:
    beside = (partitioned(5, None), partitioned(7, "tpu"), partitioned(9, "gpu"))
    assessment = assess(emulated(*beside), chip)
    assert (assessment.evidence.stage, assessment.evidence.platform, assessment.evidence.chip) == (
        *("partitioned", chip.kind),
        chip.name,
    )
    assert assessment.basis == "partitioned" and assessment.traffic.bytes == 3 * wire
    # The bytes that XLA for CPUs needs say nothing about the chip.
    assert assessment.memory is None or assessment.memory.peak_bytes < 10**9


def test_without_a_partitioned_program_the_figures_are_those_of_cpus() -> None:
    assessment = assess(emulated(), V5E)
    assert (assessment.evidence.stage, assessment.evidence.platform, assessment.evidence.chip) == (
        *("compiled", "cpu"),
        None,
    )
    assert assessment.step is None or (assessment.step.low, assessment.step.high) == (None, None)
    assert assessment.memory.at_least and assessment.memory.fits is None


def test_a_program_of_the_chip_is_unchanged() -> None:
    own = replace(compiled(1), partitioned=(partitioned(7, "tpu"),))
    assert for_chip(own, H100) is own
    assert evidence_of(own, own.programs[0], V5E).chip == "v5e"


def test_what_a_run_recorded_stays() -> None:
    (ran,) = emulated().programs
    (program,) = for_chip(emulated(partitioned(7, "tpu")), V5E).programs
    assert (program.seconds, program.shardings, program.name) == (ran.seconds, ran.shardings, ran.name)


SIZES = st.integers(1, 10**9)


@pytest.mark.parametrize(
    ("kind", "stage"),
    [("pinned_host", "partitioned"), ("device", "partitioned"), ("pinned_host", "compiled")],
)
def test_moves_to_host_memory_have_no_time_before_a_compile(kind: str, stage: str) -> None:
    argument = ProgramArray("input", "m", None, None, None, memory_kind=kind)
    program = replace(partitioned(7, "tpu"), stage=stage, shardings=(argument,))
    expected = (kind, stage) == ("pinned_host", "partitioned")
    assert (HOST_MOVES in evidence_on(program, "tpu", V5E).assumptions) is expected


@st.composite
def snapshots(draw) -> Snapshot:
    """A layout of one model at any stage, with or without the program for other machines."""
    flops = draw(st.sampled_from([1e9, 1e12, 1e15]))
    wires = [draw(SIZES) for _ in range(2)]
    plan = planned(*(sent(("data",), wire) for wire in wires), flops=flops)
    beside = [partitioned(draw(SIZES), kind) for kind in draw(st.sets(st.sampled_from(["tpu", "gpu"])))]
    ran = replace(emulated(*beside), arrays=plan.arrays)
    own = replace(compiled(draw(SIZES), *plan.programs[0].collectives), arrays=plan.arrays)
    return draw(st.sampled_from([plan, replace(plan, partitioned=tuple(beside) or None), ran, own]))


@given(snapshots(), snapshots(), st.sampled_from([None, V5E, H100]))
def test_a_verdict_has_an_inverse_and_nothing_is_better_than_itself(first, second, chip) -> None:
    result, other = compared([("one", first), ("other", second)], chip)
    there, back = verdict(result, other), verdict(other, result)
    inverse = {"better": "worse", "worse": "better"}
    assert back.answer == inverse.get(there.answer, there.answer)
    if there.ratio:
        assert back.ratio == pytest.approx(1 / there.ratio)
        assert back.low == pytest.approx(1 / there.high)
    itself = verdict(result, result)
    assert itself.answer in ("not distinguishable", "not comparable")
    assert itself.ratio in (None, 1.0)


@given(snapshots(), st.sampled_from([V5E, H100]))
def test_a_layout_is_not_better_than_itself_at_another_stage(first: Snapshot, chip) -> None:
    stripped = replace(first, partitioned=None)
    for other in (stripped, replace(first, programs=first.programs)):
        result, same = compared([("one", first), ("same", other)], chip)
        assert verdict(result, same).answer in ("not distinguishable", "not comparable")
