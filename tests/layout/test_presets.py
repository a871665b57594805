"""Presets: what each promises, counted on the planned arrays, and whose rules they are."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from flax import linen
from hypothesis import given
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.layout import mesh_shapes, presets
from inspector.layout.plan import plan
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Snapshot
from inspector.sharding import rules
from inspector.tracing.leaves import spec_of
from inspector.tracing.model.abstract import abstract_state
from tests.paths import CASES

CASES = CASES / "rules"
SIZES = {
    "logical_mlp": {"layers": "2", "depth": "64"},
    "mlp": {"layers": "2", "depth": "64"},
    "transformer": {"layers": "2", "scan": "true"},
    "moe": {"layers": "2", "scan": "true"},
}
EVERYWHERE = [(m, p) for m, entry in CATALOGUE.items() for p in presets.fitting(entry)]


def preset(name: str, model: str) -> presets.Preset:
    (found,) = (preset for preset in presets.fitting(CATALOGUE[model]) if preset.name == name)
    return found


def planned(name: str, model: str) -> Snapshot:
    start = layouts.parse({"model": model, "mesh": "2x4"} | SIZES[model]).unwrap()
    layout = preset(name, model).applied_to(start)
    return plan(layout, abstract_state(layout))


@pytest.mark.parametrize(("model", "chosen"), EVERYWHERE, ids=lambda p: getattr(p, "name", p))
def test_a_preset_makes_a_layout_that_parses(model: str, chosen: presets.Preset) -> None:
    for devices in (1, 8, 12, 64):
        layout = chosen.applied_to(layouts.parse({"model": model, "mesh": str(devices)}).unwrap())
        assert layouts.parse(layouts.to_fields(layout)).unwrap() == layout
        assert layout.devices == devices
        assert presets.matching(layout) == chosen
    assert set(itertools.chain.from_iterable(axes for _, axes in chosen.rules)) <= set(chosen.axis_names)


@pytest.mark.parametrize("model", CATALOGUE)
def test_a_model_has_the_presets_whose_logical_axes_it_has(model: str) -> None:
    entry = CATALOGUE[model]
    fitting = presets.fitting(entry)
    names = [preset.name for preset in fitting]
    assert len(set(names)) == len(names)
    assert {"Data", "FSDP", "Data + tensor", "FSDP + tensor"} <= set(names)
    assert ("Tensor" in names) == bool({"hidden", "heads"} & set(entry.logical_axes))
    assert ("Expert" in names) == ("expert" in entry.logical_axes)
    assert ("Tensor + sequence" in names) == ("seq" in entry.logical_axes)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("model", ["logical_mlp", "mlp"])
@pytest.mark.parametrize(
    ("name", "copies_of_parameters", "parts_of_batch"),
    [("Data", 8, 8), ("Tensor", 1, 1), ("Data + tensor", 2, 2), ("FSDP", 1, 8), ("FSDP + tensor", 1, 2)],
)  # fmt: skip
def test_presets_keep_their_promise(
    name: str, model: str, copies_of_parameters: int, parts_of_batch: int
) -> None:
    snapshot = planned(name, model)
    for array in snapshot.arrays:
        if array.group == "params":
            assert array.bytes_per_device * 8 == array.bytes * copies_of_parameters
        if array.path.startswith("batch"):
            assert array.bytes == array.bytes_per_device * parts_of_batch


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("name", "model", "shape", "copies_of_matrices", "parts_of_batch", "parts_of_output"),
    [
        ("Data", "transformer", (8,), 8, 8, 8),
        ("FSDP", "transformer", (8,), 1, 8, 8),
        ("Data + tensor", "transformer", (2, 4), 2, 2, 8),
        ("FSDP + tensor", "transformer", (2, 4), 1, 2, 8),
        ("Tensor + sequence", "transformer", (2, 4), 2, 8, 8),
        ("MaxText", "transformer", (1, 2, 2, 2), 1, 4, 8),
        ("T5X, 1D", "transformer", (2, 4), 2, 2, 8),
        ("T5X, 2D", "transformer", (2, 4), 1, 2, 8),
        ("FSDP", "moe", (8,), 1, 8, 8),
        ("Expert", "moe", (2, 4), 1, 8, 8),
        ("Expert + tensor", "moe", (2, 2, 2), 1, 4, 8),
        ("MaxText, experts", "moe", (1, 2, 2, 2), 1, 4, 8),
    ],
)  # fmt: skip
def test_presets_of_transformers_keep_their_promise(
    name: str,
    model: str,
    shape: tuple[int, ...],
    copies_of_matrices: int,
    parts_of_batch: int,
    parts_of_output: int,
) -> None:
    snapshot = planned(name, model)
    assert tuple(axis.size for axis in snapshot.mesh.axes) == shape
    matrices = [
        array
        for array in snapshot.arrays
        if array.group in ("params", "opt_state")
        and len([axis for axis in array.logical_axes or () if axis not in (None, "layers")]) > 1
    ]
    assert matrices
    for array in matrices:
        assert array.bytes_per_device * 8 == array.bytes * copies_of_matrices, array.path
    for name in ("batch/tokens", "batch/targets"):
        assert snapshot.array(name).bytes == snapshot.array(name).bytes_per_device * parts_of_batch
    output = snapshot.array("output")
    assert output.bytes == output.bytes_per_device * parts_of_output


def test_tensor_parallelism_of_a_transformer_can_run_with_fewer_heads_of_keys_than_devices() -> None:
    snapshot = planned("Tensor", "transformer")
    assert [axis.size for axis in snapshot.mesh.axes] == [8]
    assert not [finding for finding in snapshot.findings if finding.level == "error"]
    for array in snapshot.arrays:
        axes = set(array.logical_axes or ())
        copies = 1 if axes & {"vocab", "mlp", "heads"} else 8
        if array.group == "params" or array.path.startswith("batch"):
            assert array.bytes_per_device * 8 == array.bytes * copies, array.path


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6, 8, 12, 36, 97, 512])
def test_two_axes_are_as_square_as_the_count_allows(devices: int) -> None:
    first, second = mesh_shapes.mesh_shape(devices, 2)
    assert first * second == devices and first <= second
    # There is no divisor between the two.
    assert not [size for size in range(first + 1, second) if devices % size == 0 and size * size <= devices]


@given(st.integers(1, 512), st.integers(1, layouts.LARGE_AXES))
def test_meshes_are_complete_with_the_most_even_first(devices: int, axes: int) -> None:
    shapes = mesh_shapes.mesh_shapes(devices, axes)
    divisors = [size for size in range(1, devices + 1) if devices % size == 0]
    every = itertools.product(divisors, repeat=axes)
    assert set(shapes) == {shape for shape in every if math.prod(shape) == devices}
    first = mesh_shapes.mesh_shape(devices, axes)
    assert first == shapes[0] == tuple(sorted(first))
    assert sum(first) == min(map(sum, shapes))


@pytest.mark.parametrize(("devices", "even"), [(8, (2, 2, 2)), (64, (4, 4, 4)), (512, (8, 8, 8))])
def test_three_axes_are_split_evenly(devices: int, even: tuple[int, ...]) -> None:
    assert mesh_shapes.mesh_shape(devices, 3) == even


def test_a_mesh_is_chosen_that_divides_the_models_sizes() -> None:
    chosen = preset("FSDP + tensor", "transformer")
    for kv_heads, shape in {"8": (2, 4), "2": (4, 2), "1": (8, 1), "3": (8, 1)}.items():
        start = layouts.parse({"model": "transformer", "mesh": "8", "kv_heads": kv_heads,
                               "heads": "24"}).unwrap()  # fmt: skip
        assert chosen.applied_to(start).mesh_shape == shape
    # If no mesh divides the arrays, the most even one is chosen, and the plan has findings.
    start = layouts.parse({"model": "transformer", "mesh": "8", "batch": "3", "heads": "3",
                           "kv_heads": "3"}).unwrap()  # fmt: skip
    assert chosen.applied_to(start).mesh_shape == (2, 4)


USUAL = {
    "transformer data,model": "Data + tensor",
    "transformer fsdp,tensor": "FSDP + tensor",
    "transformer fsdp": "FSDP",
    "transformer data": "Data",
    "moe data,model": "Data + tensor",
    "moe fsdp,expert": "Expert",
    "moe fsdp,expert,tensor": "Expert + tensor",
}


@pytest.mark.parametrize(("layout", "name"), USUAL.items())
def test_mesh_axes_of_usual_names_have_usual_rules(layout: str, name: str) -> None:
    model, axes = layout.split()
    mesh = "x".join(["2"] * len(axes.split(",")))
    parsed = layouts.parse({"model": model, "mesh": mesh, "axes": axes}).unwrap()
    assert presets.matching(parsed) == preset(name, model)


def test_a_layout_that_is_no_preset_matches_none() -> None:
    layout = layouts.parse({"rules": "hidden=data"}).unwrap()
    assert presets.matching(layout) is None


# Our logical axes in the words of others, for weights and for activations, and the dimensions of the
# activations that a transformer constrains.
WEIGHTS = {
    "T5X": {"kv_heads": "heads", "head_dim": "kv"},
    "MaxText": {"heads": "q_heads", "head_dim": "kv"},
    "MaxText, experts": {"expert": "exp", "embed": "embed_moe", "mlp": "mlp_moe"},
}
ACTIVATIONS = {
    "T5X": {"kv_heads": "heads", "head_dim": "kv", "seq": "length"},
    "MaxText": {
        "seq": "activation_length",
        "head_dim": "activation_kv",
        **{name: f"activation_{name}" for name in ("batch", "embed", "mlp", "heads", "kv_heads", "vocab")},
    },
}
CONSTRAINED = [
    ("batch", "seq", "embed"),
    ("batch", "seq", "mlp"),
    ("batch", "seq", "heads", "head_dim"),
    ("batch", "seq", "kv_heads", "head_dim"),
    ("batch", "seq", "vocab"),
]


# What the documentation of T5X and MaxText says of these weights and activations, by hand: a dimension has
# the mesh axes of the first rule whose axes are free.
BY_HAND: dict[str, dict[str, str]] = {
    "T5X, 1D": {
        "vocab embed": "model -", "embed mlp": "- model", "mlp embed": "model -",
        "embed heads head_dim": "- model -", "batch seq embed": "data - -", "batch seq mlp": "data - model",
    },
    "T5X, 2D": {
        "vocab embed": "model data", "embed mlp": "data model", "mlp embed": "model data",
        "embed heads head_dim": "data model -", "batch seq embed": "data - model",
        "batch seq mlp": "data - model",
    },
    "MaxText": {
        "vocab embed": "tensor fsdp+context", "embed mlp": "fsdp+context tensor",
        "embed heads head_dim": "fsdp+context tensor -", "batch seq embed": "data+fsdp context tensor",
        "batch seq mlp": "data+fsdp context tensor", "batch seq vocab": "data+fsdp context tensor",
    },
    "MaxText, experts": {
        "expert embed mlp": "expert fsdp tensor", "embed mlp": "fsdp+expert tensor",
        "vocab embed": "tensor fsdp+expert", "batch seq embed": "data+fsdp+expert - tensor",
        "expert batch mlp": "expert data+fsdp tensor",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_others_presets_shard_as_their_documentation_says(name: str) -> None:
    chosen = preset(name, "moe" if "experts" in name else "transformer")
    for axes, spec in BY_HAND[name].items():
        expected = [None if entry == "-" else tuple(entry.split("+")) for entry in spec.split()]
        assert list(rules.partition_spec(tuple(axes.split()), chosen.rules)) == expected, axes


def published_rules(name: str, mesh_axes: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Rules as they were published, without the mesh axes that this mesh lacks: they would have size 1."""
    if not CASES.is_dir():
        pytest.skip("needs ../shared/cases")
    if name.startswith("MaxText"):
        text = (CASES / "maxtext_logical_axis_rules.json").read_text()
        listed = json.loads(text)["2026-08"]["logical_axis_rules"]
    else:
        text = (CASES / "other_frameworks_rules.json").read_text()
        key = {"T5X, 1D": "act1_param1", "T5X, 2D": "act2_param2"}[name]
        listed = json.loads(text)["t5x"][key]
    kept = []
    for logical, axes in listed:
        axes = [axes] if isinstance(axes, str) else axes or []
        kept.append((logical, tuple(axis for axis in axes if axis in mesh_axes) or None))
    return kept


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("T5X, 1D", "transformer"),
        ("T5X, 2D", "transformer"),
        ("MaxText", "transformer"),
        ("MaxText, experts", "moe"),
    ],
)
def test_others_presets_lay_arrays_out_as_their_own_rules_do(name: str, model: str) -> None:
    chosen = preset(name, model)
    theirs = published_rules(name, chosen.axis_names)
    snapshot = planned(name, model)
    family = name.split(",")[0]

    def expected(axes: tuple[str | None, ...], words: dict[str, str]) -> Any:
        translated = tuple(words.get(axis, axis) for axis in axes)
        return spec_of(linen.logical_to_mesh_axes(translated, theirs), len(axes))

    compared = 0
    for array in snapshot.arrays:
        axes = array.logical_axes
        # MaxText calls the scale of a norm `norm`, which is split another way.
        if array.group != "params" or array.path.endswith("scale"):
            continue
        words = WEIGHTS["MaxText, experts" if "expert" in axes else family]
        assert array.spec == expected(axes, words), array.path
        compared += 1
    assert compared >= 9
    for axes in CONSTRAINED:
        assert rules.partition_spec(axes, chosen.rules) == expected(axes, ACTIVATIONS[family])
