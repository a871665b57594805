"""Memory, time and traffic at a glance: the numbers of the Snapshots, counted a second way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector.compare.compared import compared
from inspector.compare.questions import StepMeasure, measures
from inspector.layout.plan import INDIVISIBLE
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from inspector.records.snapshot import Finding, Snapshot
from tests.compare.glances import compiled, planned, sent
from tests.figures import samples

V5E, V5P = hardware.chip("v5e"), hardware.chip("v5p")


def by_kind(snapshots: list[Snapshot], chip=V5E, baseline: int = 0) -> dict[str, StepMeasure]:
    return {measure.kind: measure for measure in measured(snapshots, baseline, chip)}


def measured(snapshots: list[Snapshot], baseline: int, chip: Chip | None) -> tuple[StepMeasure, ...]:
    names = [f"layout {number}" for number in range(len(snapshots))]
    return measures(compared(list(zip(names, snapshots, strict=True)), chip), baseline)


def parts(measure: StepMeasure, place: int) -> dict[str, float]:
    return dict(measure.amounts[place].parts)


def test_memory_of_a_plan_is_state_and_batch_by_group() -> None:
    snapshot = planned()
    memory = by_kind([snapshot])["memory"]
    expected: dict[str, int] = {}
    names = {
        "params": "parameters",
        "opt_state": "optimizer state",
        "other": "unknown role",
    }
    for array in snapshot.arrays:
        name = names[array.group]
        expected[name] = expected.get(name, 0) + array.bytes_per_device
    assert parts(memory, 0) == expected
    (amount,) = memory.amounts
    assert amount.value == sum(expected.values()) and amount.text.startswith("at least")
    assert amount.limit == V5E.allocatable_bytes


def test_memory_of_a_compiled_step_is_the_sum_of_the_compiler() -> None:
    memory = by_kind([compiled(10_000, aliased=96), compiled(3_000_000)])["memory"]
    arguments = sum(array.bytes_per_device for array in compiled(0).arrays)
    # Arguments, outputs, temporaries and code, less what is aliased.
    totals = [arguments + 4096 + 10_000 + 128 - 96, arguments + 4096 + 3_000_000 + 128]
    assert [amount.value for amount in memory.amounts] == totals
    assert [amount.known for amount in memory.amounts] == totals
    assert parts(memory, 1)["temporaries"] == 3_000_000
    assert [answer.verdict for answer in memory.answers] == ["baseline", "worse"]


def test_a_layout_that_jax_rejects_has_no_amounts() -> None:
    error = Finding("error", INDIVISIBLE, "batch of size 2 is not divisible by 4 (data) in batch/x")
    rejected = replace(planned(sent(("data",), 1)), findings=(error,))
    works = planned(sent(("data",), 9))
    works = replace(works, programs=(replace(works.programs[0], flops_per_device=5.0),))
    for measure in by_kind([works, rejected]).values():
        assert measure.amounts[0].value is not None and measure.answers[1].verdict == "unknown"
        assert (
            measure.amounts[1].value is None and not measure.amounts[1].parts and measure.amounts[1].unknown
        )


def test_a_lower_bound_is_not_compared_with_a_compiled_amount() -> None:
    measures = by_kind([planned(), compiled(1), planned()])
    assert [answer.verdict for answer in measures["memory"].answers] == [
        "baseline",
        "not comparable",
        "equal",
    ]


def test_traffic_by_mesh_axes_counts_every_execution() -> None:
    snapshot = planned(sent(("data",), 100), sent(("model",), 7, 5), sent(("data",), 50, 1))
    other = planned(sent(("data",), 10))
    traffic = by_kind([snapshot, other], baseline=1)["traffic"]
    assert parts(traffic, 0) == {"data": 350, "model": 35}
    assert [amount.value for amount in traffic.amounts] == [385, 30]
    assert [amount.stage for amount in traffic.amounts] == ["partitioned before a compile"] * 2
    assert (traffic.answers[0].verdict, traffic.answers[0].change) == ("worse", "×13")


@pytest.mark.parametrize("unknown", [sent(None, None), sent(("model",), 8, None)])
def test_unknown_traffic_is_no_zero(unknown) -> None:
    traffic = by_kind([planned(sent(("data",), 100)), planned(sent(("data",), 100), unknown)])["traffic"]
    amount = traffic.amounts[1]
    assert amount.value is None and amount.known == 300 and amount.unknown
    assert traffic.answers[1].verdict == "unknown"


def test_time_is_compute_and_exposed_communication() -> None:
    plans = [planned(sent(("data",), 2**30), flops=flops) for flops in (1e15, 2e15)]
    time = by_kind(plans)["time"]
    for amount in time.amounts:
        assert amount.low <= amount.value <= amount.high
        assert amount.known == pytest.approx(amount.value)
    assert set(parts(time, 0)) == {"matrix products", "HBM", "data"}
    work = [parts(time, place)["matrix products"] for place in (0, 1)]
    assert work[1] == pytest.approx(2 * work[0], rel=1e-3)
    assert parts(time, 1)["data"] == parts(time, 0)["data"]
    assert time.answers[1].verdict == "worse"


def test_what_is_missing_is_unknown_with_a_reason() -> None:
    bare = replace(samples.snapshot(arrays=()), programs=())
    for measure in measured([planned(sent(("data",), 1)), bare], 0, None):
        if measure.kind == "memory":
            assert measure.amounts[0].value and measure.amounts[0].limit is None
        amount = measure.amounts[1]
        assert (amount.value, amount.parts) == (None, {}) and amount.unknown
    time = by_kind([planned(sent(("data",), 1))], None)["time"]
    assert time.amounts[0].value is None


def test_layouts_for_several_chips_have_the_limit_of_each() -> None:
    measures = measured([planned(), compiled(1)], 0, None)
    assert [amount.limit for amount in measures[0].amounts] == [None, V5E.allocatable_bytes]
    # The chosen chip is for the layout without one.
    on_two = measured([planned(), compiled(1)], 0, V5P)
    assert [amount.limit for amount in on_two[0].amounts] == [
        V5P.allocatable_bytes,
        V5E.allocatable_bytes,
    ]
    assert on_two[1].answers[1].verdict == "not comparable"
    on_one = measured([planned(), compiled(1)], 0, V5E)
    assert {amount.limit for amount in on_one[0].amounts} == {V5E.allocatable_bytes}
