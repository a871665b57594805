"""The change with which a layout fits, checked by planning and partitioning it again."""

from __future__ import annotations

from dataclasses import replace

from inspector import audit
from inspector import layout as layouts
from inspector.answers.improvements import fitting, ranked
from inspector.assessment import assess
from inspector.jobs.inspection import Inspection
from inspector.layout import Layout, from_json
from inspector.machines import hardware
from inspector.records.snapshot.effects import KINDS

# 36 GiB of replicated train state in one layer. Its activations are small.
LARGE = {"depth": "32768", "layers": "1", "batch": "8", "mesh": "8", "axes": "data", "rules": "batch=data"}


def planned(service: Inspection, layout: Layout):
    service.state(layout).answer()
    return service.with_programs(service.plan(layout), layout)


def fits(change) -> bool:
    return bool(change.cost and change.cost.fits)


def test_the_smallest_change_that_fits_is_found(service: Inspection) -> None:
    layout = layouts.parse(LARGE | {"target": "plan"}).unwrap()
    v5e = hardware.chip("v5e")
    before = assess(planned(service, layout), v5e)
    assert before.memory.fits is False
    effects = service.effects(layout, "train_step", "v5e").answer()
    best = effects.fitting
    assert best is not None and fits(best)
    smaller = KINDS[: KINDS.index(best.kind)]
    assert not any(fits(change) for change in effects.changes if change.kind in smaller)
    after = assess(planned(service, from_json(best.layout)), v5e)
    assert after.memory.fits and after.memory.peak_bytes == best.cost.peak_bytes
    snapshot = replace(planned(service, layout), effects=effects)
    first = ranked(snapshot, audit.ranked(snapshot, v5e), v5e)[0]
    assert (first.label, first.effect) == ("error", best)
    assert best.label in first.message and fitting(effects) in first.message


def test_a_layout_that_nothing_makes_fit_has_the_closest_change(service: Inspection) -> None:
    layout = layouts.parse(LARGE | {"depth": "262144", "mesh": "1", "target": "plan"}).unwrap()
    effects = service.effects(layout, "train_step", "v5e").answer()
    assert effects.fitting is None and effects.closest.label in fitting(effects)
    costs = [change.cost for change in effects.changes if change.cost is not None]
    # The train state alone does not fit, so nothing else is known of these layouts.
    assert {cost.peak_bytes for cost in costs} == {None} and not any(cost.fits for cost in costs)
    assert effects.closest.cost.state_bytes == min(cost.state_bytes for cost in costs)
    assert any(change.kind == "chips" for change in effects.changes)
