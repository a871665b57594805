"""What cannot be compared is said, each with its reason."""

from __future__ import annotations

import dataclasses

import pytest

from inspector.compare.difference import reservations
from inspector.core.snapshot import Snapshot
from tests.compare.difference.layouts import planned
from tests.compare.difference.programs import ran


def test_nothing_is_held_back_between_plans_of_one_model() -> None:
    assert reservations(planned(mesh="2x4"), planned(mesh="4x2")) == ()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (planned, lambda: planned(model="mlp"), "different models, logical_mlp and mlp"),
        (planned, lambda: planned(depth="128"), "models differ in depth"),
        (planned, lambda: planned(mesh="2x2"), "8 and 4 devices"),
        (planned, lambda: ran(planned()), "the first has no compiled programs"),
        (lambda: ran(planned()), lambda: ran(planned(), steps=(0.2,)), "only times taken in turn"),
        (
            lambda: ran(planned()),
            lambda: ran(planned(), kind="tpu", target="tpu:v5e:2x4"),
            "the second compiled for tpu:v5e:2x4: different compilers",
        ),
        (
            planned,
            lambda: dataclasses.replace(planned(), mesh=None),
            "The mesh of the second is not known",
        ),
        (planned, lambda: dataclasses.replace(planned(), arrays=()), "The second has no arrays"),
    ],
)
def test_each_reason(before, after, words: str) -> None:
    assert any(words in one for one in reservations(before(), after()))


def test_versions_that_differ_are_named() -> None:
    def made_with(**versions: str) -> Snapshot:
        found = planned()
        return dataclasses.replace(
            found, source=dataclasses.replace(found.source, versions=versions)
        )

    said = reservations(made_with(jax="0.10.2", numpy="1"), made_with(jax="0.12.0", numpy="2"))
    assert said == ("They were made with different versions: jax 0.10.2 and 0.12.0.",)


def test_a_snapshot_can_be_held_against_itself_in_everything() -> None:
    found = ran(planned())
    assert reservations(found, found) == ()


def test_elements_are_only_promised_where_shapes_are_known() -> None:
    whole = planned()

    def without(**facts: None) -> Snapshot:
        arrays = [
            dataclasses.replace(one, bytes=None, bytes_per_device=None, **facts)
            for one in whole.arrays
        ]
        return dataclasses.replace(whole, arrays=tuple(arrays))

    (said,) = reservations(without(), whole)
    assert said.endswith("so that elements are compared.")
    (said,) = reservations(whole, without(shape=None, shard_shape=None))
    assert said.endswith("so that only specs and places are compared.")
    bare = dataclasses.replace(whole, arrays=())
    assert not any("elements" in one for one in reservations(bare, bare))
