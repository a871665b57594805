"""The answers of an assessment with their change, and the verdict in a line."""

from __future__ import annotations

import pytest

from inspector.answers import arrays, assessed, summary
from inspector.answers.section import Strong
from inspector.records.assessment import Assessment, FindingCounts, MemoryNeed, Step, StepTraffic
from inspector.records.snapshot import Array, Snapshot, Source

MIB = 2**20


def assessment(**fields) -> Assessment:
    known = {
        "chip": "v5e",
        "devices": 8,
        "basis": "partitioned",
        "program": "train_step",
        "step": Step(0.2, 0.1, 0.3, "predicted"),
        "memory": MemoryNeed(24 * MIB, 24 * MIB, 24 * MIB, 1000 * MIB, True),
        "traffic": StepTraffic(8 * MIB, {"data": 8 * MIB}),
        "state_bytes_per_device": 24 * MIB,
        "findings": FindingCounts(0, 1, 0),
    }
    return Assessment(**known | fields)


def changes(assessment: Assessment, before: Assessment | None) -> list[tuple[str | None, bool | None]]:
    return [(fact.change, fact.better) for fact in assessed.of_assessment(assessment, before).facts]


def test_equal_and_unknown_answers_have_no_change() -> None:
    result = assessment()
    assert changes(result, None) == changes(result, result) == [(None, None)] * 4
    unknown = assessment(step=None, memory=None, traffic=None, findings=None)
    assert changes(unknown, result) == changes(result, unknown) == [(None, None)] * 4


def test_less_is_better() -> None:
    before = assessment()
    result = assessment(
        memory=MemoryNeed(48 * MIB, 48 * MIB, 48 * MIB, 1000 * MIB, True),
        traffic=StepTraffic(4 * MIB, {"data": 4 * MIB}),
        findings=FindingCounts(1, 0, 0),
    )
    assert changes(result, before) == [
        ("24.0 → 48.0 MiB", False),
        (None, None),
        ("8.0 → 4.0 MiB", True),
        ("1 warning → 1 error", False),
    ]


@pytest.mark.parametrize("other", [{"chip": "v5p"}, {"basis": "compiled"}])
def test_figures_of_other_evidence_are_not_compared(other: dict[str, str]) -> None:
    result = assessment(traffic=StepTraffic(MIB, {"data": MIB}), **other)
    assert changes(result, assessment())[:3] == [(None, None)] * 3


def test_a_rejected_layout_is_not_better() -> None:
    result = assessment(traffic=StepTraffic(MIB, {"data": MIB}), rejected="8 is not divisible by 3")
    assert changes(result, assessment())[2] == ("8.0 → 1.0 MiB", None)
    (lead, *_) = assessed.verdict(result).parts
    assert lead == Strong("Rejected by JAX")


def test_the_state_per_device_before_and_now() -> None:
    result = assessment(state_bytes_per_device=48 * MIB)
    assert assessed.state_change(result, None) == "48.0 MiB"
    assert assessed.state_change(result, assessment()) == "24.0 → 48.0 MiB"
    empty = Snapshot(Source("plan", None, "2026-01-01"), None, None, ())
    (line,) = summary.line(empty, "24.0 → 48.0 MiB").parts
    assert "per device 24.0 → 48.0 MiB" in str(line)


def test_the_array_with_the_most_bytes_per_device_is_first() -> None:
    every = [
        Array(path=name, group="params", shape=(1,), dtype="float32", bytes_per_device=size)
        for name, size in (("unknown", None), ("small", 1), ("large", 9))
    ]
    assert [array.path for array in arrays.by_bytes(every)] == ["large", "small", "unknown"]


@pytest.mark.parametrize(
    ("by_axes", "label", "line"),
    [
        ({"fsdp": 3, "tensor": 1}, "Traffic, 75% over fsdp", "4 B, 75% over fsdp"),
        ({"fsdp": 3}, "Traffic, over fsdp", "3 B, over fsdp"),
        ({"fsdp": 0, "tensor": 0}, "Traffic", "none"),  # collectives of arrays without elements
        ({}, "Traffic", "none"),
    ],
)
def test_the_traffic_names_its_largest_axes_with_their_share(
    by_axes: dict[str, int], label: str, line: str
) -> None:
    sending = assessment(traffic=StepTraffic(sum(by_axes.values()), by_axes))
    assert assessed.of_assessment(sending).facts[2].label == label
    assert assessed.traffic_text(sending) == line


def test_an_unknown_step_says_what_gives_it() -> None:
    """A compiled program without times has run without a profile; a planned one has not run."""
    labels = [
        assessed.of_assessment(assessment(chip=None, step=None, basis=basis)).facts[1].label
        for basis in ("compiled", "partitioned", "planned")
    ]
    assert ["--profile" in label for label in labels] == [True, False, False]
