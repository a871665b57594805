"""Results of searches for tests."""

from __future__ import annotations

from inspector import layout as layouts
from inspector.compare.search.evaluated import of_assessment
from inspector.compare.search.result import Counts, SearchResult, candidate
from inspector.core.assessment import Assessment, FindingCounts, MemoryNeed, Step, StepTraffic


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
    result = candidate(layout, cost, cost, pareto=True, current=True)
    return SearchResult("tpu:v5e:2x4", "v5e", "2026-01-01", Counts(1, 1, 1, 1), (result,), 0)
