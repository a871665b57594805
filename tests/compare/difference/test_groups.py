"""Arrays grouped by cause: each array is in one group, and the groups' bytes add up to the totals."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.compare.difference import arrays
from inspector.compare.difference.causes import REORDERED, Cause, causes
from inspector.compare.difference.sentences import DifferenceGroup, groups
from inspector.records.snapshot import Snapshot
from inspector.sharding.totals import STATE_GROUPS
from tests.compare.difference.layouts import planned
from tests.examples import costly


def grouped(before: Snapshot, after: Snapshot) -> tuple[DifferenceGroup, ...]:
    why = causes(before, after)
    return groups(arrays(why.before, after), why)


RULES = ["", "batch=data", "batch=data,hidden=model", "hidden=model,embed=data", "embed=data+model",
         "hidden=model,batch=data", "embed=model,hidden=model"]  # fmt: skip
LAYOUTS = st.fixed_dictionaries(
    {
        "mesh": st.sampled_from(["2x4", "4x2", "1x8", "2x2"]),
        "rules": st.sampled_from(RULES),
        "optimizer": st.sampled_from(["adam", "sgd"]),
        "dtype": st.sampled_from(["float32", "bfloat16"]),
        "layers": st.sampled_from(["1", "2"]),
    }
)


@costly()
@given(LAYOUTS, LAYOUTS)
def test_every_difference_is_in_one_group_and_bytes_are_those_of_the_totals(
    one: dict[str, str], other: dict[str, str]
) -> None:
    before, after = planned(**one), planned(**other)
    compared = arrays(before, after)
    result = groups(compared, causes(before, after))
    paths = [it.path for group in result for it in group.differences]
    assert sorted(paths) == sorted(it.path for it in compared if it.changed)

    held = [
        sum(array.bytes_per_device for array in snapshot.arrays if array.group in STATE_GROUPS)
        for snapshot in (before, after)
    ]
    assert sum(group.state.gained for group in result) == held[1] - held[0]
    everything = [sum(array.bytes_per_device for array in snapshot.arrays) for snapshot in (before, after)]
    assert sum(group.all.gained for group in result) == everything[1] - everything[0]

    mirrored = groups(arrays(after, before), causes(after, before))
    assert sorted(group.all.gained for group in result) == sorted(-g.all.gained for g in mirrored)
    # Both layouts are known, so every group has a cause.
    assert all(group.causes for group in result)


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"mesh": "4x2"}, {"mesh data 2 × model 4 → data 4 × model 2"}),
        ({"rules": "batch=data"}, {"rule hidden → model removed"}),
        ({"rules": "batch=data,hidden=data"}, {"rule hidden → model changed to hidden → data"}),
        ({"rules": "batch=data,hidden=model,embed=data"}, {"rule embed → data added"}),
        ({"dtype": "bfloat16"}, {"dtype float32 → bfloat16"}),
        ({"optimizer": "sgd"}, {"optimizer adam → sgd"}),
        ({"depth": "128"}, {"depth 64 → 128"}),
        
    ],
)  # fmt: skip
def test_causes_are_what_was_changed(fields: dict[str, str], texts: set[str]) -> None:
    before = planned(mesh="2x4", axes="data,model", rules="batch=data,hidden=model")
    kept = {"mesh": "2x4", "axes": "data,model", "rules": "batch=data,hidden=model"}
    after = planned(**(kept | fields))
    groups = grouped(before, after)
    assert {cause.text for group in groups for cause in group.causes} == texts


def test_another_model_is_the_cause_of_all_other_arrays() -> None:
    before, after = planned(), planned(model="mlp")
    paths = tuple(dataclasses.replace(array, path=f"{array.path}/w") for array in before.arrays)
    renamed = dataclasses.replace(before, arrays=paths)
    groups = grouped(renamed, after)
    assert {group.causes for group in groups} == {(Cause("model", "", "logical_mlp", "mlp"),)}


def test_a_rule_that_takes_the_axis_of_another_is_the_cause() -> None:
    # embed comes first and takes model, so that hidden, whose own rule is the same, gets nothing.
    before = planned(rules="batch=data,hidden=model")
    after = planned(rules="embed=model,batch=data,hidden=model")
    groups = grouped(before, after)
    assert {cause.text for group in groups for cause in group.causes} == {"rule embed → model added"}


def test_the_order_of_rules_can_be_a_cause() -> None:
    before = planned(rules="hidden=model,embed=model")
    after = planned(rules="embed=model,hidden=model")
    groups = grouped(before, after)
    assert groups
    assert {group.causes for group in groups} == {(REORDERED,)}


def test_specs_of_a_model_with_device_axes_are_named() -> None:
    before = planned(model="mlp")
    after = planned(model="mlp", specs="W1=model.None")
    groups = grouped(before, after)
    assert {(cause.kind, cause.name) for group in groups for cause in group.causes} == {
        ("PartitionSpec", "W1")
    }
