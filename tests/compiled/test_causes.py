"""What depends on a rule."""

from __future__ import annotations

from dataclasses import replace

from inspector import layout as layouts
from inspector.compiled.causes import dependents
from inspector.core.snapshot import Snapshot
from inspector.layout.plan import plan, with_programs
from inspector.producers.abstract import abstract_state
from inspector.producers.propagation.propagate import propagated_programs


def planned() -> Snapshot:
    layout = layouts.parse({"mesh": "2x4", "depth": "64"}).unwrap()
    programs = propagated_programs(layout, only=("train_step", "apply"))
    return with_programs(plan(layout, abstract_state(layout)), programs)


def without_origins(found: Snapshot) -> Snapshot:
    """As after a compile, whose text has no origins."""
    return replace(
        found,
        programs=tuple(
            replace(
                one,
                collectives=tuple(replace(each, origins=None) for each in one.collectives or ()),
            )
            for one in found.programs
        ),
    )


def test_collectives_without_recorded_origins_are_unknown() -> None:
    found = planned()
    every = sum(len(one.collectives or ()) for one in found.programs)
    rules = [dependents(found, f"{name} → {axis}") for name, axis in
             (("hidden", "model"), ("batch", "data"))]  # fmt: skip
    assert all(one.collectives and one.unknown == 0 for one in rules)
    assert sum(len(one.collectives) for one in rules) == every
    unknown = dependents(without_origins(found), "hidden → model")
    assert (len(unknown.collectives), unknown.unknown) == (0, every)
