"""Tests of the variants of one model and of their differences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.compare import difference
from inspector.compare.difference import ArrayDifference
from inspector.guides import variants
from inspector.layout.plan import plan
from inspector.records.snapshot import Snapshot
from inspector.tracing.model.abstract import abstract_state


def leaf_pairs(left: Snapshot, right: Snapshot, groups: tuple[str, ...]) -> list[ArrayDifference]:
    return [array for array in difference.arrays(left, right) if array.either.group in groups]


def planned(layout: layouts.Layout) -> Snapshot:
    return plan(layout, abstract_state(layout))


def small(**fields: str) -> layouts.Layout:
    return layouts.parse({"layers": "2", "depth": "64"} | fields).unwrap()


@pytest.mark.nightly
def test_specs_from_rules_equal_the_rules() -> None:
    for fields in (
        {},
        {"scan": "true", "loss": "mse"},
        {"mesh": "2x2x2", "axes": "a,b,c", "rules": "batch=a,embed=b,hidden=c+b"},
        {"rules": ""},
        {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp", "unconstrained": "y"},
    ):
        pair = variants.logical_and_device_axes(small(**fields))
        assert layouts.parse(layouts.to_fields(pair.right)).unwrap() == pair.right
        pairs = leaf_pairs(planned(pair.left), planned(pair.right), variants.GROUPS)
        assert len(pairs) >= 10 and all(array_difference.same_placement for array_difference in pairs)


def test_a_spec_of_ones_own_is_named_where_it_differs() -> None:
    layout = small(model="mlp", specs="W2=None.model")
    pair = variants.logical_and_device_axes(layout)
    pairs = leaf_pairs(planned(pair.left), planned(pair.right), variants.GROUPS)
    different = {array_difference.path for array_difference in pairs if not array_difference.same_placement}
    # Both layers' W2, as parameter and in either moment.
    assert len(different) == 6 and all(path.endswith("/W2") for path in different)


def test_leaves_are_equal_if_their_placement_is_equal() -> None:
    layout = small(mesh="1x8")
    left = planned(layout)
    respelled = tuple(
        replace(a, spec=(("data",), *a.spec[1:])) if a.spec and a.spec[0] is None else a for a in left.arrays
    )
    assert all(
        leaf_pair.same_placement
        for leaf_pair in leaf_pairs(left, replace(left, arrays=respelled), variants.GROUPS)
    )
    moved = replace(left.mesh, devices=left.mesh.devices[::-1])
    assert (
        all(
            leaf_pair.same_placement
            for leaf_pair in leaf_pairs(left, replace(left, mesh=moved), variants.GROUPS)
        )
        is False
    )


def test_loop_and_scan_differ_in_nothing_but_the_scan() -> None:
    pair = variants.loop_and_scan(small(scan="true"))
    assert (pair.left.sizes["scan"], pair.right.sizes["scan"]) == (False, True)
    assert replace(pair.left, sizes=pair.right.sizes) == pair.right
