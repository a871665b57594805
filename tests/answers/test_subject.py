"""Titles: the model with its size, the machine, and what differs from the published model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.answers import subject
from inspector.machines import hardware
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Snapshot
from tests.compare import glances


def plan_of(**fields: str) -> Snapshot:
    return replace(glances.planned(), layout=layouts.parse(fields).unwrap().to_json())


LLAMA = {name: str(value) for name, value in CATALOGUE["transformer"].presets[1].sizes.items()}


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        (LLAMA | {"model": "transformer", "target": "tpu:v5e:4x4*2", "mesh": "2x16", "batch": "32"},
         "Llama-3-8B, 2 slices of v5e 4×4"),
        (LLAMA | {"model": "transformer", "layers": "8", "mesh": "16", "target": "tpu:v5e:4x4"},
         "Transformer, v5e 4×4"),
        ({"target": "gpu:h100:8"}, "MLP, logical axes, 8 H100 SXM"),
        ({"target": "plan"}, "MLP, logical axes, 4 devices"),
    ],
)  # fmt: skip
def test_a_title_has_the_published_model_and_the_machine(fields: dict[str, str], title: str) -> None:
    snapshot = plan_of(**fields)
    assert subject.title([("a", snapshot)]).replace("NVIDIA ", "") == title
    assert title in subject.line([("a", snapshot)]).replace("NVIDIA ", "")


def test_sizes_that_differ_are_named_and_no_others() -> None:
    def changed(**fields: str) -> str:
        return subject.changed_sizes(layouts.parse(fields).unwrap())

    assert changed() == ""
    assert changed(batch="16") == "batch 16"
    assert changed(model="transformer", **LLAMA) == ""
    assert changed(model="transformer", **LLAMA | {"batch": "32", "remat": "none"}) == "batch 32, remat none"


def test_the_number_of_parameters_is_that_of_the_arrays() -> None:
    snapshot = glances.planned()
    count = sum(array.elements for array in snapshot.arrays if array.group == "params")
    assert f"{count / 1e6:.3g}M parameters" in subject.details([("a", snapshot)])


def test_layouts_share_what_is_in_the_title() -> None:
    recorded = replace(glances.planned(), layout=None)
    recorded = replace(recorded, source=replace(recorded.source, kind="capture", file="train.py"))
    assert subject.title([("a", recorded)]) == "train.py, 4 emulated devices"
    assert (
        subject.title([("a", recorded)], with_mesh=True) == "train.py on data 2 × model 2, 4 emulated devices"
    )
    v5e = hardware.chip("v5e")
    assert subject.title([("a", recorded)], v5e) == "train.py, 4 emulated devices, predicted for TPU v5e"
    assert subject.title([("a", recorded), ("b", plan_of())]).startswith("Different models")
    assert subject.title([("a", plan_of()), ("b", plan_of(batch="16"))]).startswith("MLP, logical axes")
