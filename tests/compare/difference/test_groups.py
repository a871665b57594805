"""Arrays grouped by cause: each in one group, and the bytes of all groups are those of all arrays."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.compare.difference import arrays
from inspector.compare.difference.causes import causes
from inspector.compare.difference.groups import groups
from inspector.compare.difference.traffic_change import traffic_changes
from inspector.core.snapshot import Program
from inspector.core.totals import STATE_GROUPS
from tests.compare.difference.layouts import planned
from tests.compare.difference.programs import collective

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


@settings(max_examples=60)
@given(LAYOUTS, LAYOUTS)
def test_every_difference_is_in_one_group_and_bytes_are_those_of_the_totals(
    one: dict[str, str], other: dict[str, str]
) -> None:
    before, after = planned(**one), planned(**other)
    compared = arrays(before, after)
    found = groups(compared, causes(before, after), before, after)
    paths = [it.path for group in found for it in group.differences]
    assert sorted(paths) == sorted(it.path for it in compared if it.changed)

    held = [
        sum(array.bytes_per_device for array in each.arrays if array.group in STATE_GROUPS)
        for each in (before, after)
    ]
    assert sum(group.state.gained for group in found) == held[1] - held[0]
    everything = [sum(array.bytes_per_device for array in each.arrays) for each in (before, after)]
    assert sum(group.all.gained for group in found) == everything[1] - everything[0]

    mirrored = groups(arrays(after, before), causes(after, before), after, before)
    assert sorted(group.all.gained for group in found) == sorted(-g.all.gained for g in mirrored)
    # Both layouts are known here, so that nothing is without a cause.
    assert all(group.causes for group in found)


KINDS = st.tuples(
    st.sampled_from(["all-reduce", "all-gather"]),
    st.sampled_from([("data",), ("model",), ("data", "model"), None]),
    st.integers(0, 1000),
    st.integers(0, 5),
)


@given(st.lists(KINDS, max_size=6), st.lists(KINDS, max_size=6))
def test_collectives_gained_and_lost_sum_to_the_change_of_all(one: list, other: list) -> None:
    programs = [
        Program("step", collectives=tuple(collective(*it) for it in each)) for each in (one, other)
    ]
    changes = traffic_changes(*programs, {})
    wire = [sum(size * times for _, _, size, times in each) for each in (one, other)]
    assert sum(change.gained for change in changes) == wire[1] - wire[0]
    back = traffic_changes(*reversed(programs), {})
    assert {(c.mesh_axes, c.op, c.gained) for c in changes} == {
        (c.mesh_axes, c.op, -c.gained) for c in back
    }
    assert traffic_changes(programs[0], programs[0], {}) == ()


@pytest.mark.parametrize(
    ("fields", "clauses"),
    [
        ({"mesh": "4x2"}, {"The mesh is data 4 × model 2 in place of data 2 × model 4"}),
        ({"axes": "data,tensor", "rules": "batch=data,hidden=tensor"},
         {"The mesh axis model is now called tensor"}),
        ({"rules": "batch=data"}, {"The rule hidden → model is gone"}),
        ({"rules": "batch=data,hidden=data"}, {"The rule hidden → model is now hidden → data"}),
        ({"rules": "batch=data,hidden=model,embed=data"}, {"The rule embed → data is new"}),
        ({"dtype": "bfloat16"}, {"The dtype is bfloat16 in place of float32"}),
        ({"optimizer": "sgd"}, {"The optimizer is sgd in place of adam"}),
        ({"depth": "128"}, {"The model's depth is 128 in place of 64"}),
        
    ],
)  # fmt: skip
def test_causes_are_what_was_changed(fields: dict[str, str], clauses: set[str]) -> None:
    before = planned(mesh="2x4", axes="data,model", rules="batch=data,hidden=model")
    kept = {"mesh": "2x4", "axes": "data,model", "rules": "batch=data,hidden=model"}
    after = planned(**(kept | fields))
    found = groups(arrays(before, after), causes(before, after), before, after)
    assert {clause for group in found for clause in group.causes} == clauses


def test_another_model_is_the_cause_of_all_other_arrays() -> None:
    before, after = planned(), planned(model="mlp")
    paths = tuple(dataclasses.replace(one, path=f"{one.path}/w") for one in before.arrays)
    renamed = dataclasses.replace(before, arrays=paths)
    found = groups(arrays(renamed, after), causes(renamed, after), renamed, after)
    assert {group.causes for group in found} == {("The model is mlp in place of logical_mlp",)}


def test_a_rule_that_takes_an_axis_from_another_is_named_as_the_cause() -> None:
    # embed comes first and takes model, so that hidden, whose own rule is the same, gets nothing.
    before = planned(rules="batch=data,hidden=model")
    after = planned(rules="embed=model,batch=data,hidden=model")
    found = groups(arrays(before, after), causes(before, after), before, after)
    assert {clause for group in found for clause in group.causes} == {
        "The rule embed → model is new"
    }


def test_the_order_of_rules_is_a_cause_where_arrays_follow_from_it() -> None:
    before = planned(rules="hidden=model,embed=model")
    after = planned(rules="embed=model,hidden=model")
    found = groups(arrays(before, after), causes(before, after), before, after)
    assert found
    assert {group.causes for group in found} == {("The same rules stand in another order",)}


def test_specs_of_a_model_with_device_axes_are_named() -> None:
    before = planned(model="mlp")
    after = planned(model="mlp", specs="W1=model.None")
    found = groups(arrays(before, after), causes(before, after), before, after)
    assert {group.causes for group in found} == {("The PartitionSpec of W1 differs",)}
