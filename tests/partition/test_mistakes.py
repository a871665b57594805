"""Layouts with one mistake: improvements name it first, and its change saves what it promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import audit
from inspector import layout as layouts
from inspector.answers.improvements import Improvement, ranked
from inspector.layout import Layout
from inspector.layout.changes import SMALL
from inspector.layout.plan import plan
from inspector.machines import hardware
from inspector.partition.effects import layout_effects
from inspector.records.snapshot import Effects
from inspector.tracing.model.abstract import abstract_state

TRANSFORMER = {
    "model": "transformer", "target": "tpu:v5e:2x4", "layers": "2", "scan": "true", "embed": "64",
    "mlp": "128", "heads": "4", "kv_heads": "4", "head_dim": "16", "vocab": "256", "seq": "128",
    "batch": "16", "attention": "flash", "donate": "true",
}  # fmt: skip
GOOD = {**TRANSFORMER, "mesh": "2x4", "axes": "data,fsdp", "rules": "batch=data+fsdp,embed=fsdp"}
# The step is long enough to be decided, and most of HBM is free.
LARGE = {
    "embed": "1024", "mlp": "4096", "heads": "8", "kv_heads": "8", "head_dim": "128", "vocab": "4096",
    "seq": "512", "batch": "64",
}  # fmt: skip


def effects_of(layout: Layout, kinds=SMALL) -> Effects:
    chip = layout.machine.chip if layout.machine else None
    return layout_effects(layout, "train_step", chip, lambda *_, **__: None, kinds)


def first(layout: Layout) -> Improvement:
    """The first improvement of the plan with the effects of small changes, as `audit` ranks it."""
    snapshot = replace(plan(layout, abstract_state(layout)), effects=effects_of(layout))
    chip = hardware.chip("v5e") if layout.machine else None
    return ranked(snapshot, audit.ranked(snapshot, chip), chip)[0]


MISTAKES = {
    "not donated": ({"mesh": "2x4", "target": "plan", "depth": "64"}, "donation", {"donate": "true"}),
    "the batch over too few axes": (
        {**GOOD, "rules": "batch=data,embed=fsdp"},
        "batch",
        {"rules": "batch=data+fsdp,embed=fsdp"},
    ),
    "too much remat": ({**GOOD, **LARGE, "remat": "full"}, "rematerialization", {"remat": "minimal"}),
}


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_change_of_a_mistake_is_first_and_saves_what_it_says(mistake: str) -> None:
    fields, kind, mended = MISTAKES[mistake]
    layout = layouts.parse(fields).unwrap()
    improvement = first(layout)
    assert improvement.effect is not None and improvement.effect.kind == kind
    changed = layouts.from_json(improvement.effect.layout)
    assert changed == layouts.parse({**fields, **mended}).unwrap()
    after = effects_of(changed, ("none",)).current
    of_both = {"answer": None, "low": None, "high": None}  # against the layout that each changes
    assert replace(after, **of_both) == replace(improvement.effect.cost, **of_both)


@pytest.mark.nightly
def test_zero_1_is_the_first_fix_of_a_replicated_optimizer_state() -> None:
    fields = {**TRANSFORMER, "mesh": "8", "axes": "data", "rules": "batch=data"}
    layout = layouts.parse(fields).unwrap()
    improvement = first(layout)
    finding = next(one for one in improvement.findings if one.code == "replicated-optimizer-state")
    snapshot = plan(layout, abstract_state(layout))
    fix = audit.smallest_change(snapshot, finding, layout)
    mended = layouts.parse({**fields, "optimizer_axes": "data"}).unwrap()
    assert fix is not None and layouts.from_json(fix.layout) == mended
    before, after = (effects_of(one, ("none",)).current for one in (layout, mended))
    assert before.state_bytes - after.state_bytes == fix.saves > 0
