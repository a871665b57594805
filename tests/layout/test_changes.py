"""The changes of a layout: which are proposed, and that each is a valid layout."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.layout import Layout, changes
from inspector.model.built_in.catalogue import CATALOGUE


def layout_of(**fields: str) -> Layout:
    return layouts.parse(fields).unwrap()


def by_label(layout: Layout) -> dict[str, Layout]:
    """The changed layouts, but for presets and what keeps mesh, rules and constraints."""
    kept = {"preset", *changes.SMALL} - {"constraint"}
    proposed = [change for change in changes.changes(layout)[0] if change.kind not in kept]
    return {change.label: layouts.from_json(change.layout) for change in proposed}


def test_presets_on_the_same_devices_are_changes_unless_another_one_is_equal() -> None:
    layout = layout_of(mesh="2x4")
    proposed, _ = changes.changes(layout)
    presets = {change.label: change.layout for change in proposed if change.kind == "preset"}
    # Data and Tensor are the same as one axis moved into the other. Data + tensor is the layout itself.
    labels = ["Use the preset FSDP (fsdp 8)", "Use the preset FSDP + tensor (fsdp 2 × tensor 4)"]
    assert list(presets) == labels
    assert all(layouts.from_json(one).devices == 8 for one in presets.values())


def test_every_rule_constraint_axis_and_swap_is_changed_once() -> None:
    by_name = by_label(layout_of(mesh="2x4"))
    rules = {label: dict(layout.rules) for label, layout in by_name.items()}
    assert {label: rules[label] for label in rules if label[:4] in ("Remo", "Swap")} == {
        "Remove batch → data": {"hidden": ("model",)},
        "Remove hidden → model": {"batch": ("data",)},
        "Remove constraint y": {"batch": ("data",), "hidden": ("model",)},
        "Remove constraint z": {"batch": ("data",), "hidden": ("model",)},
        "Swap batch → data, hidden → model": {"batch": ("model",), "hidden": ("data",)},
    }  # fmt: skip
    assert by_name["Remove constraint y"].unconstrained == ("y",)
    moved = by_name["Move axis model into data (data 8)"]
    assert (moved.mesh_shape, moved.axis_names, moved.rules) == (
        (8,),
        ("data",),
        (("batch", ("data",)),),
    )
    assert len(by_name) == 7


def test_an_axis_moves_to_the_largest_other_one_and_leaves_its_rules() -> None:
    layout = layout_of(mesh="2x4x1", axes="a,b,c", rules="batch=a+b,embed=a,hidden=b,layer=", target="plan")
    by_name = by_label(layout)
    moved = by_name["Move axis a into b (b 8 × c 1)"]
    assert moved.rules == (("batch", ("b",)), ("hidden", ("b",)), ("layer", ()))
    unused = by_name["Leave axis a unused"]
    assert (unused.mesh_shape, unused.rules) == ((2, 4, 1), moved.rules)
    assert not any("axis c" in label for label in by_name)


def test_the_only_axis_of_a_mesh_stays_without_rules() -> None:
    by_name = by_label(layout_of(mesh="8", axes="fsdp", rules="batch=fsdp,embed=fsdp"))
    unused = by_name["Leave axis fsdp unused"]
    assert unused.rules == () and unused.mesh_shape == (8,)


def test_the_other_axes_keep_their_types() -> None:
    layout = layout_of(mesh="2x4x2", axes="a:explicit,b,c:explicit", rules="batch=a")
    by_name = by_label(layout)
    assert by_name["Move axis a into b (b 8 × c 2)"].explicit_axes == ("c",)
    assert by_name["Move axis c into b (a 2 × b 8)"].explicit_axes == ("a",)


def test_removed_constraints_are_not_removed_again() -> None:
    layout = layout_of(mesh="2x4", unconstrained="y")
    assert by_label(layout)["Remove constraint z"].unconstrained == ("y", "z")
    assert "Remove constraint y" not in by_label(layout)


def test_a_model_with_device_axes_replicates_one_array_at_a_time() -> None:
    layout = layout_of(model="mlp", mesh="2x4")
    by_name = by_label(layout)
    assert by_name["Replicate W1"].specs == {**layout.specs, "W1": (None, None)}
    assert by_name["Move axis data into model (model 8)"].specs["x"] == (None, None)


def test_nnx_rules_are_changed_to_none() -> None:
    layout = layout_of(mesh="2x4")
    entry = replace(layout.entry, rules_semantics="nnx", name="nnx_model")
    CATALOGUE["nnx_model"] = entry
    try:
        by_name = by_label(replace(layout, model="nnx_model"))
        assert by_name["Change batch → data to none"].rules[0] == ("batch", ())
        moved = next(one for label, one in by_name.items() if label.startswith("Move axis data"))
        assert moved.rules == (("batch", ()), ("hidden", ("model",)))
    finally:
        del CATALOGUE["nnx_model"]


def test_swaps_are_limited() -> None:
    rules = ",".join(
        f"embed={axes}" for axes in ("a", "b", "c", "a+b", "b+a", "a+c", "c+a", "b+c", "c+b", "a+b+c")
    )
    result, left_out = changes.changes(layout_of(mesh="2x2x2", axes="a,b,c", rules=rules))
    assert sum(change.kind == "swap" for change in result) == changes.MOST_SWAPS
    assert left_out == 45 - changes.MOST_SWAPS


names = st.sampled_from(["batch", "embed", "hidden", "layer", "unknown"])
axes = st.lists(st.sampled_from(["data", "model"]), unique=True, max_size=2).map(tuple)


@given(st.lists(st.tuples(names, axes), max_size=6), st.sampled_from(["2x4", "1x8", "4x2"]))
def test_changes_are_valid_distinct_and_keep_the_devices(rules, mesh) -> None:
    layout = replace(layout_of(mesh=mesh), rules=tuple(rules))
    result, _ = changes.changes(layout)
    changed = [layouts.from_json(change.layout) for change in result]
    texts = [one.key() for one in changed]
    assert len(set(texts)) == len(texts) and layout.key() not in texts
    for one, change in zip(changed, result, strict=True):
        assert one.to_json() == change.layout and one.devices == layout.devices


@pytest.mark.parametrize("model", ["logical_mlp", "mlp", "transformer", "moe"])
def test_default_layouts_have_changes(model: str) -> None:
    layout = layout_of(model=model)
    kinds = {change.kind for change in changes.changes(layout)[0]}
    assert {"constraint", "axis"} <= kinds


def test_each_optimizer_axis_is_removed_alone() -> None:
    layout = layout_of(mesh="2x4", optimizer_axes="model,data")
    by_name = by_label(layout)
    kept = [(axes,) for axes in ("data", "model")]
    removed = [one for one in by_name.values() if one.optimizer_axes in kept and one.rules == layout.rules]
    assert removed == [replace(layout, optimizer_axes=axes) for axes in kept]
    assert by_name["Leave axis data unused"].optimizer_axes == ("model",)


TRANSFORMER = {"model": "transformer", "mesh": "2x4", "axes": "fsdp,tensor", "rules": "embed=fsdp,mlp=tensor"}


def of_kind(layout: Layout, kind: str) -> list[Layout]:
    return [layouts.from_json(one.layout) for one in changes.changes(layout)[0] if one.kind == kind]


@pytest.mark.parametrize("target", ["plan", "tpu:v5e:2x4", "tpu:v5p:2x2x4", "tpu:v5e:2x2*2", "gpu:h100:8"])
def test_more_devices_are_those_of_a_machine(target: str) -> None:
    mesh = "4x4" if target == "tpu:v5p:2x2x4" else "2x4"
    layout = layout_of(**TRANSFORMER | {"target": target, "mesh": mesh})
    every = [layouts.from_json(change.layout) for change in changes.more_chips(layout)]
    assert every
    for changed in every:
        assert changed.devices % layout.devices == 0 and changed.devices > layout.devices
        assert math.prod(changed.mesh_shape) == changed.devices
        assert changed.machine is None or changed.machine.devices == changed.devices


@pytest.mark.parametrize(("now", "others"), [("full", {"none", "minimal"}), ("none", {"minimal", "full"})])
def test_the_backward_pass_computes_more_or_less_again(now: str, others: set[str]) -> None:
    layout = layout_of(**TRANSFORMER, remat=now)
    assert {one.sizes["remat"] for one in of_kind(layout, "rematerialization")} == others
    (offloaded,) = changes.offloaded(layout)
    assert not changes.offloaded(layouts.from_json(offloaded.layout))
    assert not of_kind(layout_of(mesh="2x4"), "rematerialization"), "the model has no such size"


def test_the_train_state_is_donated_once() -> None:
    (donated,) = of_kind(layout_of(mesh="2x4"), "donation")
    assert donated == replace(layout_of(mesh="2x4"), donate=True) and not of_kind(donated, "donation")
    assert not of_kind(layout_of(**TRANSFORMER, cache="128"), "donation"), "no train step"


def test_the_batch_is_sharded_over_one_more_axis() -> None:
    layout = layout_of(mesh="2x4x1", axes="data,fsdp,model", rules="batch=data,embed=fsdp", target="plan")
    (changed,) = of_kind(layout, "batch")
    assert changed.rules == (("batch", ("data", "fsdp")), ("embed", ("fsdp",)))


@pytest.mark.parametrize(("sizes", "counts"), [({}, {2}), ({"accumulate": "4"}, {2, 8})])
def test_microbatches_are_doubled_and_halved(sizes: dict[str, str], counts: set[int]) -> None:
    layout = layout_of(**TRANSFORMER, **sizes)
    assert {one.sizes["accumulate"] for one in of_kind(layout, "microbatches")} == counts


def test_two_changes_are_one() -> None:
    layout = layout_of(**TRANSFORMER)
    first = next(change for change in changes.changes(layout)[0] if change.kind == "optimizer")
    further = changes.changes(layouts.from_json(first.layout))[0]
    both = changes.both(first, next(one for one in further if one.kind == "rematerialization"))
    changed = layouts.from_json(both.layout)
    assert changed.optimizer_axes and changed.sizes["remat"] == "minimal" and first.label in both.label
