"""Layouts that differ in one rule, against all rules of a small model."""

from __future__ import annotations

import itertools

from inspector import layout as layouts
from inspector.layout.changes import neighbors
from inspector.sharding.rules import partition_spec

AXES = ("fsdp", "tensor")


def uses(layout) -> dict[str, tuple[str, ...]]:
    """The mesh axes of each logical axis alone, as Flax applies the rules."""
    return {name: partition_spec([name], layout.rules)[0] or () for name in layout.entry.logical_axes}


def test_neighbors_differ_in_one_logical_axis_and_reach_every_use_of_two_mesh_axes():
    fields = {"mesh": "2x4", "axes": ",".join(AXES), "rules": "batch=fsdp,embed=fsdp,hidden=tensor"}
    layout = layouts.parse(fields).unwrap()
    before = uses(layout)
    reached: dict[str, set[tuple[str, ...]]] = {name: {before[name]} for name in before}
    for neighbor in neighbors(layout):
        after = uses(neighbor)
        (changed,) = [name for name in before if after[name] != before[name]]
        reached[changed].add(after[changed])
    single = {(), *itertools.permutations(AXES, 1)}
    for name, found in reached.items():
        assert single <= found
        if before[name]:
            assert (*before[name], *(axis for axis in AXES if axis not in before[name])) in found


def test_locked_rules_stay_and_a_model_without_rules_has_no_neighbors():
    layout = layouts.parse({"mesh": "2x4", "axes": "fsdp,tensor", "rules": "batch=fsdp"}).unwrap()
    kept = next(iter(layout.entry.logical_axes))
    assert all(uses(neighbor)[kept] == uses(layout)[kept] for neighbor in neighbors(layout, [kept]))
    without = layouts.parse({"model": "mlp", "mesh": "8", "axes": "data"}).unwrap()
    assert not without.entry.has_rules and not list(neighbors(without))
