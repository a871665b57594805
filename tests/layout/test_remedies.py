"""Changes that lower the memory of a device."""

from __future__ import annotations

import math

import pytest

from inspector import layout as layouts
from inspector.layout.remedies import more_chips, rematerialized, sharded

TRANSFORMER = {"model": "transformer", "mesh": "2x4", "axes": "fsdp,tensor", "rules": "embed=fsdp,mlp=tensor"}


@pytest.mark.parametrize("target", ["plan", "tpu:v5e:2x4", "tpu:v5p:2x2x4", "tpu:v5e:2x2*2", "gpu:h100:8"])
def test_more_devices_are_those_of_a_machine(target: str) -> None:
    mesh = "4x4" if target == "tpu:v5p:2x2x4" else "2x4"
    layout = layouts.parse(TRANSFORMER | {"target": target, "mesh": mesh}).unwrap()
    every = list(more_chips(layout))
    assert every
    for proposal in every:
        changed = proposal.layout
        assert changed.devices % layout.devices == 0 and changed.devices > layout.devices
        assert math.prod(changed.mesh_shape) == changed.devices
        assert changed.machine is None or changed.machine.devices == changed.devices
        assert layouts.from_json(changed.to_json()) == changed


def test_changes_on_the_same_devices_keep_them() -> None:
    layout = layouts.parse(TRANSFORMER | {"target": "plan"}).unwrap()
    for proposal in (*sharded(layout), *rematerialized(layout)):
        assert proposal.layout.devices == layout.devices and proposal.layout != layout
        assert layouts.from_json(proposal.layout.to_json()) == proposal.layout
    assert {proposal.kind for proposal in rematerialized(layout)} == {"rematerialization", "offload"}


def test_what_is_computed_again_already_is_no_change() -> None:
    full = layouts.parse(TRANSFORMER | {"target": "plan", "remat": "full"}).unwrap()
    assert [proposal.kind for proposal in rematerialized(full)] == ["offload"]
    mlp = layouts.parse({"target": "plan"}).unwrap()  # has no such size
    assert not list(rematerialized(mlp))


def test_two_changes_are_one() -> None:
    layout = layouts.parse(TRANSFORMER | {"target": "plan"}).unwrap()
    first = next(sharded(layout))
    both = first.and_then(next(rematerialized(first.layout)))
    assert both.layout.optimizer_axes and both.layout.sizes["remat"] == "minimal"
    assert first.label in both.label
