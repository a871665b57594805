"""Presets: what each promises, counted on the planned arrays."""

from __future__ import annotations

import pytest

from inspector import layout as layouts
from inspector import presets
from inspector.plan import plan
from inspector.producers.abstract import abstract_state
from inspector.snapshot import Snapshot

PRESETS = {preset.name: preset for preset in presets.PRESETS}


def planned(name: str, model: str) -> Snapshot:
    start = layouts.parse({"model": model, "mesh": "2x4", "layers": "2", "depth": "64"}).unwrap()
    layout = PRESETS[name].applied_to(start)
    # What a preset makes must be a layout that a person could have typed.
    assert layouts.parse(layouts.to_fields(layout)).unwrap() == layout
    assert layout.devices == 8
    assert presets.matching(layout) is PRESETS[name]
    return plan(layout, abstract_state(layout))


@pytest.mark.parametrize("model", ["logical_mlp", "mlp"])
@pytest.mark.parametrize(
    ("name", "copies_of_parameters", "parts_of_batch"),
    [("Data", 8, 8), ("Tensor", 1, 1), ("Data + tensor", 2, 2), ("FSDP", 1, 8), ("FSDP + tensor", 1, 2)],
)
def test_presets_keep_their_promise(
    name: str, model: str, copies_of_parameters: int, parts_of_batch: int
) -> None:
    found = planned(name, model)
    for array in found.arrays:
        if array.group == "params":
            assert array.bytes_per_device * 8 == array.bytes * copies_of_parameters
        if array.path == "batch":
            assert array.bytes == array.bytes_per_device * parts_of_batch


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6, 8, 12, 36, 97, 512])
def test_two_axes_are_as_square_as_the_count_allows(devices: int) -> None:
    first, second = presets.mesh_shape(devices, 2)
    assert first * second == devices and first <= second
    # No divisor lies strictly between the two.
    assert not [size for size in range(first + 1, second) if devices % size == 0 and size * size <= devices]


def test_a_layout_that_is_no_preset_matches_none() -> None:
    layout = layouts.parse({"rules": "hidden=data"}).unwrap()
    assert presets.matching(layout) is None
