"""One logical axis that does not divide many arrays is told once, and no other finding is lost."""

from __future__ import annotations

from inspector import layout as layouts
from inspector.checks.audit import audited, together
from inspector.layout.plan import INDIVISIBLE, plan
from inspector.producers.abstract import abstract_state


def test_arrays_of_one_logical_axis_are_one_and_the_rest_stays() -> None:
    layout = layouts.parse({"mesh": "2x3", "batch": "7", "layers": "2", "depth": "64"}).unwrap()
    findings = audited(plan(layout, abstract_state(layout))).findings
    uneven = [one for one in findings if one.code == INDIVISIBLE]
    by_axis = {one.extra["logical_axis"]: 0 for one in uneven}
    assert set(by_axis) == {"batch", "hidden"} and len(uneven) > 2
    for one in uneven:
        by_axis[one.extra["logical_axis"]] += 1
    told = together(findings)
    for one in (one for one in told if one.code == INDIVISIBLE):
        more = by_axis[one.extra["logical_axis"]] - 1
        assert (f"nor in {more} more array" in one.message) == bool(more)
    assert [one for one in told if one.code != INDIVISIBLE] == [
        one for one in findings if one.code != INDIVISIBLE
    ]
    assert together(told) == told
