"""Every reason why two Snapshots are not fully comparable has a caveat."""

from __future__ import annotations

import dataclasses

import pytest

from inspector.compare.caveats import caveats, remark
from inspector.records.snapshot import Snapshot
from tests.compare.difference.layouts import planned
from tests.compare.difference.programs import ran


def codes(before: Snapshot, after: Snapshot) -> set[str]:
    return {caveat.code for caveat in caveats(before, after)}


def test_plans_of_one_model_are_comparable() -> None:
    assert caveats(planned(mesh="2x4"), planned(mesh="4x2")) == ()


def test_a_snapshot_is_comparable_with_itself() -> None:
    assert caveats(ran(planned()), ran(planned())) == ()


def without_model() -> Snapshot:
    plan = planned()
    arrays = tuple(array for array in plan.arrays if array.path != "step")
    return dataclasses.replace(plan, layout=None, arrays=arrays)


@pytest.mark.parametrize(
    ("before", "after", "code", "short"),
    [
        (planned, lambda: planned(model="mlp"), "model", "another model"),
        (planned, lambda: planned(depth="128"), "sizes", "other sizes"),
        (planned, without_model, "arrays", "other arrays"),
        (planned, lambda: planned(batch="3"), "rejected", "other sizes"),
        (lambda: planned(batch="3"), planned, "rejected", "other sizes"),
        (planned, lambda: planned(mesh="2x2"), "devices", "another number of devices"),
        (planned, lambda: ran(planned()), "source", ""),
        (lambda: ran(planned()), lambda: ran(planned(), steps=(0.2,)), "times", ""),
        (
            lambda: ran(planned()),
            lambda: ran(planned(), kind="tpu", target="tpu:v5e:2x4"),
            "source",
            "",
        ),
        (planned, lambda: dataclasses.replace(planned(), mesh=None), "mesh", ""),
        (planned, lambda: dataclasses.replace(planned(), arrays=()), "no-arrays", ""),
    ],
)
def test_each_reason(before, after, code: str, short: str) -> None:
    assert code in codes(before(), after())
    assert remark(before(), after()) == short


def test_versions_that_differ_are_named() -> None:
    def made_with(**versions: str) -> Snapshot:
        snapshot = planned()
        return dataclasses.replace(snapshot, source=dataclasses.replace(snapshot.source, versions=versions))

    (caveat,) = caveats(made_with(jax="0.10.2", numpy="1"), made_with(jax="0.12.0", numpy="2"))
    assert caveat.code == "versions" and "jax 0.10.2 and 0.12.0" in caveat.text


def test_elements_are_compared_only_if_shapes_are_known() -> None:
    whole = planned()

    def without(**facts: None) -> Snapshot:
        arrays = [
            dataclasses.replace(array, bytes=None, bytes_per_device=None, **facts) for array in whole.arrays
        ]
        return dataclasses.replace(whole, arrays=tuple(arrays))

    assert codes(without(), whole) == {"elements"}
    assert codes(whole, without(shape=None, shard_shape=None)) == {"specs"}
    bare = dataclasses.replace(whole, arrays=())
    assert not codes(bare, bare)
