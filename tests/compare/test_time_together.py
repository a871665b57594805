"""Selecting the layouts that can be timed together, with a reason for each other one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.compare import paired_times as time_together
from inspector.jobs.inspection import Inspection
from inspector.layout import emulation as machine
from inspector.layout.plan import plan
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state

GIB = 1024**3


def planned(**fields: str) -> Snapshot:
    layout = layouts.parse({"layers": "1", "depth": "64"} | fields).unwrap()
    return plan(layout, abstract_state(layout))


@pytest.fixture(scope="module")
def one() -> Snapshot:
    return planned(mesh="2x4")


def test_untimed_layouts_have_a_reason_and_the_others_are_timed(one: Snapshot) -> None:
    imported = replace(one, layout=None, source=replace(one.source, kind="maxtext"))
    broken = replace(one, layout={"model": "nobody"})
    snapshots = [
        one,
        imported,
        planned(target="plan"),
        planned(mesh="2x4", processes="2"),
        planned(mesh="8x1", batch="4"),
        broken,
        planned(mesh="2x2"),
    ]
    candidates = time_together.candidates(snapshots, 0, GIB)
    assert list(candidates.layouts) == [0, 6] and candidates.devices == 8
    reasons = {untimed.layout: untimed.reason for untimed in candidates.untimed}
    assert list(reasons) == [1, 2, 3, 4, 5]
    for number, words in (
        (1, "it is from maxtext"),
        (2, "target is 'plan'"),
        (3, "2 processes"),
        (4, "8"),
        (5, "'nobody'"),
    ):
        assert words in reasons[number]


def test_the_baseline_is_first_and_memory_is_summed(one: Snapshot) -> None:
    needed = machine.state_bytes_in_a_step(one)
    available = int(2.5 * needed / machine.USABLE_SHARE)
    candidates = time_together.candidates([one] * 4, 3, available)
    assert list(candidates.layouts) == [0, 3]
    assert [untimed.layout for untimed in candidates.untimed] == [1, 2]
    assert "together with the train states of 2 more, needs about" in candidates.untimed[0].reason


def test_invalid_requests_are_rejected_before_a_worker_starts(one: Snapshot) -> None:
    service = Inspection(run_workers=1, memory=GIB)
    try:
        for rounds in (0, 5, 51):
            with pytest.raises(InvalidInput, match=f"rounds is {rounds}"):
                service.timing([one, one], rounds).start()
        with pytest.raises(InvalidInput, match="layout 2 cannot: its target"):
            service.timing([one, planned(target="plan")], 6).start()
    finally:
        service.close()
