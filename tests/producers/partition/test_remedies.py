"""The change with which a layout fits, checked by planning and partitioning it again."""

from __future__ import annotations

from inspector import layout as layouts
from inspector.assessment import assess
from inspector.core.remedies import Remedies
from inspector.layout import Layout, from_json
from inspector.machines import hardware
from inspector.sections.improvements import fitting, of_remedies
from inspector.service.inspection import Inspection

# 36 GiB of replicated train state in one layer. Its activations are small.
LARGE = {"depth": "32768", "layers": "1", "batch": "8", "mesh": "8", "axes": "data", "rules": "batch=data"}


def planned(service: Inspection, layout: Layout):
    service.state(layout).answer()
    return service.with_programs(service.plan(layout), layout)


def test_the_smallest_change_that_fits_is_found(service: Inspection) -> None:
    layout = layouts.parse(LARGE | {"target": "plan"}).unwrap()
    v5e = hardware.chip("v5e")
    before = assess(planned(service, layout), v5e)
    assert before.memory.fits is False
    remedies: Remedies = service.remedies(layout, "v5e").answer()
    assert service.remedies(layout, "v5e").known() == remedies
    best = remedies.best
    assert best is not None and remedies.tried[-1] == best
    for remedy in remedies.tried[:-1]:
        assert remedy.need is None or not remedy.need.fits
    after = assess(planned(service, from_json(best.layout)), v5e)
    assert after.memory.fits and after.memory.peak_bytes == best.need.peak_bytes
    first = of_remedies(remedies, before.memory)
    assert first is not None and first.title == best.label
    assert best.label in "".join(str(part) for part in fitting(remedies, before.memory).parts)


def test_a_layout_that_nothing_makes_fit_has_the_closest_change(service: Inspection) -> None:
    layout = layouts.parse(LARGE | {"depth": "262144", "mesh": "1", "target": "plan"}).unwrap()
    remedies = service.remedies(layout, "v5e").answer()
    assert remedies.best is None and of_remedies(remedies, remedies.closest.need) is None
    needs = [remedy.need.peak_bytes for remedy in remedies.tried if remedy.need is not None]
    assert remedies.closest.need.peak_bytes == min(needs)
