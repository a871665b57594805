"""Memory, time and traffic at a glance: the numbers of the Snapshots, counted a second way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector.compare.compared import compared
from inspector.compare.questions.measures import Measure, measures
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout.plan import INDIVISIBLE
from inspector.machines import hardware
from inspector.machines.hardware import Chip
from tests.compare.glances import compiled, planned, sent
from tests.figures import samples

V5E, V5P = hardware.chip("v5e"), hardware.chip("v5p")


def by_kind(snapshots: list[Snapshot], chip=V5E, baseline: int = 0) -> dict[str, Measure]:
    return {one.kind: one for one in measured(snapshots, baseline, chip)}


def measured(snapshots: list[Snapshot], baseline: int, chip: Chip | None) -> tuple[Measure, ...]:
    names = [f"layout {number}" for number in range(len(snapshots))]
    return measures(compared(list(zip(names, snapshots, strict=True)), chip), baseline)


def parts(measure: Measure, place: int) -> dict[str, float]:
    return {part.name: part.amount for part in measure.amounts[place].parts}


def test_memory_of_a_plan_is_state_and_batch_by_group() -> None:
    found = planned()
    memory = by_kind([found])["memory"]
    expected: dict[str, int] = {}
    names = {
        "params": "parameters",
        "opt_state": "optimizer state",
        "other": "other arrays",
    }
    for array in found.arrays:
        name = names[array.group]
        expected[name] = expected.get(name, 0) + array.bytes_per_device
    assert parts(memory, 0) == expected
    (one,) = memory.amounts
    assert one.at_least and one.value == sum(expected.values()) and one.fits is None
    assert one.limit == V5E.allocatable_bytes


def test_memory_of_a_compiled_step_is_the_sum_of_the_compiler() -> None:
    memory = by_kind([compiled(10_000, aliased=96), compiled(30_000)])["memory"]
    arguments = sum(one.bytes_per_device for one in compiled(0).arrays)
    # Arguments, outputs, temporaries and code, less what is aliased.
    totals = [arguments + 4096 + 10_000 + 128 - 96, arguments + 4096 + 30_000 + 128]
    assert [one.value for one in memory.amounts] == totals
    assert [one.known for one in memory.amounts] == totals
    assert parts(memory, 1)["temporaries"] == 30_000
    assert [one.verdict for one in memory.answers] == ["baseline", "worse"]


def test_a_layout_that_jax_rejects_has_no_amounts() -> None:
    error = Finding("error", INDIVISIBLE, "batch of size 2 is not divisible by 4 (data) in batch/x")
    rejected = replace(planned(sent(("data",), 1)), findings=(error,))
    works = planned(sent(("data",), 9))
    works = replace(works, programs=(replace(works.programs[0], flops_per_device=5.0),))
    for one in by_kind([works, rejected]).values():
        assert one.amounts[0].value is not None and one.answers[1].verdict == "unknown"
        assert one.amounts[1].value is None and not one.amounts[1].parts and one.amounts[1].unknown


def test_a_lower_bound_is_not_compared_with_a_compiled_amount() -> None:
    found = by_kind([planned(), compiled(1), planned()])
    assert [one.verdict for one in found["memory"].answers] == [
        "baseline",
        "not comparable",
        "equal",
    ]


def test_traffic_by_mesh_axes_counts_every_execution() -> None:
    found = planned(sent(("data",), 100), sent(("model",), 7, 5), sent(("data",), 50, 1))
    other = planned(sent(("data",), 10))
    traffic = by_kind([found, other], baseline=1)["traffic"]
    assert parts(traffic, 0) == {"data": 350, "model": 35}
    assert [one.value for one in traffic.amounts] == [385, 30]
    assert [one.stage for one in traffic.amounts] == ["partitioned before a compile"] * 2
    assert (traffic.answers[0].verdict, traffic.answers[0].change) == ("worse", "×13")


@pytest.mark.parametrize("unknown", [sent(None, None), sent(("model",), 8, None)])
def test_unknown_traffic_is_no_zero(unknown) -> None:
    traffic = by_kind([planned(sent(("data",), 100)), planned(sent(("data",), 100), unknown)])["traffic"]
    one = traffic.amounts[1]
    assert one.value is None and one.known == 300 and one.unknown
    assert traffic.answers[1].verdict == "unknown"


def test_time_is_compute_and_exposed_communication() -> None:
    plans = [planned(sent(("data",), 2**30), flops=flops) for flops in (1e15, 2e15)]
    time = by_kind(plans)["time"]
    for one in time.amounts:
        assert one.low <= one.value <= one.high
        assert one.known == pytest.approx(one.value)
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
        one = measure.amounts[1]
        assert (one.value, one.parts) == (None, ()) and one.unknown
    time = by_kind([planned(sent(("data",), 1))], None)["time"]
    assert time.amounts[0].value is None and time.chip is None


def test_layouts_for_several_chips_have_no_common_chip() -> None:
    found = measured([planned(), compiled(1)], 0, None)
    assert {one.chip for one in found} == {None}
    assert [one.limit for one in found[0].amounts] == [None, V5E.allocatable_bytes]
    # The chosen chip is for the layout without one.
    on_two = measured([planned(), compiled(1)], 0, V5P)
    assert [one.limit for one in on_two[0].amounts] == [
        V5P.allocatable_bytes,
        V5E.allocatable_bytes,
    ]
    assert {one.chip for one in on_two} == {None}
    assert on_two[1].answers[1].verdict == "not comparable"
    assert {one.chip.name for one in measured([planned(), compiled(1)], 0, V5E)} == {"v5e"}
