"""Results of searches for tests."""

from __future__ import annotations

from dataclasses import replace

from inspector import layout as layouts
from inspector.records.assessment import Assessment, FindingCounts, MemoryNeed, Step, StepTraffic
from inspector.search.result import Counts, SearchResult, of_assessment


def search_result() -> SearchResult:
    """Return the result of a search with one compiled candidate."""
    layout = layouts.parse({"mesh": "4x2", "target": "tpu:v5e:2x4"}).unwrap()
    own = Assessment(
        "v5e",
        8,
        "compiled",
        "train_step",
        Step(0.5, 0.4, 0.6, "predicted"),
        MemoryNeed(10, 10, 10, 100, True, "train_step"),
        StepTraffic(30, {"data": 30}),
        5,
        FindingCounts(),
    )
    cost = of_assessment(own, "compiled", 7)
    result = replace(
        cost, layout=layout.to_json(), pareto=True, current=True, partitioned_seconds=cost.seconds
    )
    return SearchResult("tpu:v5e:2x4", "v5e", "2026-01-01", Counts(1, 1, 1, 1), (result,), 0)
