"""The sizes that people start from: layouts that can be typed, with as many parameters as were published."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from inspector import layout as layouts
from inspector.layout import Layout, presets
from inspector.layout.plan import plan
from inspector.model import SizePreset
from inspector.model.built_in import published
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.tracing.model.abstract import abstract_state

# From the metadata of the weights on https://huggingface.co: meta-llama/Meta-Llama-3-8B, its 70B, and
# mistralai/Mixtral-8x7B-v0.1.
PUBLISHED = {
    "Llama-3-8B": 8_030_261_248,
    "Llama-3-70B": 70_553_706_496,
    "Mixtral-8x7B": 46_702_792_704,
}
ALL = [(name, preset) for name, entry in CATALOGUE.items() for preset in entry.presets]
every_preset = pytest.mark.parametrize(("model", "preset"), ALL, ids=lambda p: getattr(p, "name", p))


def sized(model: str, preset: SizePreset, mesh: str = "8x8") -> Layout:
    start = layouts.parse({"model": model, "mesh": mesh}).unwrap()
    return replace(start, sizes=start.entry.sizes_of(preset))


def parameters(layout: Layout) -> int:
    state = abstract_state(layout)
    return sum(math.prod(array.shape) for array in state.arrays if array.group == "params")


@every_preset
def test_presets_have_valid_sizes(model: str, preset: SizePreset) -> None:
    layout = sized(model, preset)
    assert preset.sizes.keys() <= layout.sizes.keys()
    assert layouts.parse(layouts.to_fields(layout)).unwrap() == layout


def test_no_two_presets_of_a_model_have_one_name() -> None:
    for entry in CATALOGUE.values():
        names = [preset.name for preset in entry.presets]
        assert len(set(names)) == len(names)


@pytest.mark.nightly
def test_there_are_as_many_parameters_as_published() -> None:
    found = {p.name: parameters(sized(model, p)) for model, p in ALL if p.name in PUBLISHED}
    assert found == PUBLISHED


def test_the_guides_mlp_is_the_default() -> None:
    for model in ("logical_mlp", "mlp"):
        default = layouts.parse({"model": model}).unwrap()
        (guide,) = CATALOGUE[model].presets
        assert default.entry.sizes_of(guide) == default.sizes


def test_the_small_one_is_that_of_the_formula() -> None:
    (preset,) = (p for p in CATALOGUE["transformer"].presets if p.name == "125M")
    layers, width, hidden, vocabulary = 12, 768, 2048, 50_304
    formula = layers * (3 * width * hidden + 4 * width * width) + vocabulary * width
    norms = (2 * 12 + 1) * 768
    assert parameters(sized("transformer", preset)) == formula + norms
    assert formula == pytest.approx(125e6, rel=0.02)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("scan", [False, True])
def test_what_is_not_attention_or_mlp_does_not_depend_on_scan(scan: bool) -> None:
    (preset,) = (p for p in CATALOGUE["transformer"].presets if p.name == "125M")
    layout = sized("transformer", preset)
    looped = replace(layout, sizes={**layout.sizes, "scan": scan})
    assert parameters(looped) == parameters(layout)


@pytest.mark.parametrize(("model", "preset"), ALL[2:], ids=lambda p: getattr(p, "name", p))
def test_a_large_model_has_a_layout_for_each_preset(model: str, preset: SizePreset) -> None:
    layout = sized(model, preset)
    state = abstract_state(layout)
    for one in presets.fitting(layout.entry):
        if len(one.axis_names) > 1:
            planned = plan(one.applied_to(layout), state)
            assert not planned.findings, one.name


@pytest.mark.parametrize(
    "entry",
    [
        entry
        for entry in CATALOGUE.values()
        if any("heads" in entry.sizes_of(preset) for preset in entry.presets)
    ],
)
def test_published_sizes_and_defaults_need_no_others(entry):
    for preset in entry.presets:
        assert published.following(entry.sizes_of(preset), entry.presets) is None
        width = dict(preset.sizes) | {"heads": 1}
        following = published.following(width, entry.presets)
        assert following is not None
        sizes, like = following
        assert like == preset and sizes == {name: preset.sizes[name] for name in sizes}
    assert published.following({size.name: size.default for size in entry.sizes}, entry.presets) is None
