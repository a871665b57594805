"""Candidates of a search, against brute force, Flax's rules, and the presets."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.layout import Layout, mesh_shapes, presets
from inspector.search import space as spaces
from inspector.search.space import Space, identity, space_of
from inspector.sharding.abstract import AbstractArray, AbstractState
from inspector.sharding.rules import partition_spec
from inspector.text.errors import InvalidInput

TRANSFORMER = {"model": "transformer", "target": "tpu:v5e:4x4", "mesh": "16", "axes": "fsdp"}


def layout(**fields: str) -> Layout:
    return layouts.parse(TRANSFORMER | fields).unwrap()


def state(**arrays: tuple[str, str, tuple[int, ...]]) -> AbstractState:
    """Arrays by path: group, names joined by spaces, and shape."""
    return AbstractState(
        "logical",
        tuple(
            AbstractArray(path, group, shape, "float32", 4, tuple((n,) for n in names.split()))
            for path, (group, names, shape) in arrays.items()
        ),
        {},
    )


STATE = state(
    tokens=("batch", "batch seq", (8, 128)),
    table=("params", "vocab embed", (1024, 256)),
    query=("params", "embed heads head_dim", (256, 8, 32)),
    key=("params", "embed kv_heads head_dim", (256, 4, 32)),
    up=("params", "embed mlp", (256, 512)),
)


def every(space: Space) -> list[Layout]:
    return [*space.layouts()]


def test_the_logical_axes_by_their_part_in_the_model():
    logical_axes = space_of(layout(), STATE).axes
    assert logical_axes is not None
    assert (logical_axes.batch, logical_axes.sequence, logical_axes.width) == ("batch", ("seq",), "embed")
    assert set(logical_axes.parallel) == {"heads", "kv_heads", "mlp", "vocab"}  # not the width of a head


@pytest.mark.parametrize(
    ("locks", "vary"),
    [
        ((), ()),
        (("tensor=4",), ()),
        (("tensor=1",), ("remat=none,full",)),
        (("mesh",), ()),
        ((), ("optimizer_axes=none,data,data+fsdp", "remat=none,full")),
    ],
)
def test_the_count_is_the_number_of_candidates(locks, vary):
    space = space_of(layout(), STATE, locks, vary)
    layouts = every(space)
    assert len(layouts) == space.count()
    assert all(math.prod(one.mesh_shape) == 16 for one in layouts)
    if "tensor=4" in locks:
        sizes = [dict(zip(one.axis_names, one.mesh_shape, strict=True)) for one in layouts]
        assert {size.get("tensor", 1) for size in sizes} == {4}
    if vary:
        assert {one.sizes["remat"] for one in layouts} == {"none", "full"}
    if len(vary) > 1:
        wanted = {(), ("data",), ("fsdp",), ("data", "fsdp")}
        assert {one.optimizer_axes for one in layouts} == wanted
        assert all(set(one.optimizer_axes) <= set(one.axis_names) for one in layouts)


@given(st.integers(1, 256), st.integers(1, 4), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_factorings_are_all_ordered_factorizations(number, factors, least):
    def brute(rest: int, count: int) -> int:
        if count == 0:
            return rest == 1
        return sum(brute(rest // d, count - 1) for d in range(least, rest + 1) if rest % d == 0)

    factorings = list(mesh_shapes.factorings(number, factors, least))
    assert len(factorings) == len(set(factorings)) == brute(number, factors)
    assert all(math.prod(one) == number and min(one) >= least for one in factorings)


def test_fsdp_and_tensor_shard_parameters_and_activations_as_the_preset_does():
    preset = next(
        transformer_preset
        for transformer_preset in presets.TRANSFORMER_PRESETS
        if transformer_preset.name == "FSDP + tensor"
    )
    wanted = preset.applied_to(layout())
    arrays = (
        ("embed", "mlp"), ("vocab", "embed"), ("embed", "heads", "head_dim"),
        ("batch", "seq", "embed"), ("batch", "seq", "heads", "head_dim"), ("batch", "seq", "mlp"),
        ("batch", "seq", "vocab"),
    )  # fmt: skip
    same = [
        one
        for one in every(space_of(layout(), STATE))
        if one.axis_names == wanted.axis_names
        and one.mesh_shape == wanted.mesh_shape
        and all(partition_spec(a, one.rules) == partition_spec(a, wanted.rules) for a in arrays)
    ]
    assert same


def test_layouts_with_other_names_of_mesh_axes_are_equal():
    result = layout(mesh="4x4", axes="data,tensor", rules="mlp=tensor,batch=data")
    other = layout(mesh="4x4", axes="x,y", rules="batch=x,mlp=y")
    assert identity(result) == identity(other)
    assert identity(result) != identity(layout(mesh="4x4", axes="y,x", rules="batch=x,mlp=y"))
    assert identity(result) != identity(replace(result, rules=result.rules[:1]))
    sharded = [replace(each, optimizer_axes=each.axis_names[:1]) for each in (result, other)]
    assert identity(sharded[0]) == identity(sharded[1]) != identity(result)
    # The order of rules matters only if one array has both axes.
    first = layout(mesh="16", axes="x", rules="batch=x,embed=x")
    assert identity(first) != identity(layout(mesh="16", axes="x", rules="embed=x,batch=x"))


@pytest.mark.parametrize("lock", ["tensor=3", "tensor=32", "unknown=2", "tensor=0", "tensor", "mlp"])
def test_bad_locks_are_named(lock):
    with pytest.raises(InvalidInput, match=lock.partition("=")[0]):
        space_of(layout(), STATE, [lock])


@pytest.mark.parametrize("locks", [("mesh", "rules"), ("mesh", "tensor=4"), ("tensor=4", "tensor=2")])
def test_contradictory_locks_are_refused(locks):
    with pytest.raises(InvalidInput, match=r"contradict|nothing to search"):
        space_of(layout(), STATE, locks)


@pytest.mark.parametrize(
    "vary",
    [
        *("remat", "remat=", "remat=never", "mesh=2x8", "steps=1,2"),
        *("optimizer_axes=model", "optimizer_axes=data+data", "optimizer_axes=data+none"),
    ],
)
def test_bad_varied_fields_are_refused(vary):
    with pytest.raises(InvalidInput, match=vary.partition("=")[0]):
        space_of(layout(), STATE, (), [vary])


@pytest.mark.nightly
@pytest.mark.parametrize(("lock", "meshes"), [("mesh", 1), ("rules", 5)])
def test_axes_of_size_1_of_a_long_mesh_keep_it(lock, meshes):
    names = ",".join(f"a{number}" for number in range(13))
    long = layout(mesh="1x4x" + "1x" * 10 + "4", axes=names, rules="batch=a1,embed=a1,mlp=a12,heads=a2")
    space = space_of(long, STATE, [lock])
    mesh_shapes = {one.mesh_shape for one in every(space)}
    assert len(every(space)) == space.count()
    # 16 devices over two axes have five meshes.
    assert mesh_shapes <= {(1, 2**n, *(1,) * 10, 2 ** (4 - n)) for n in range(5)}
    assert len(mesh_shapes) == meshes and long.mesh_shape in mesh_shapes


def test_a_huge_space_is_counted_and_refused_at_once():
    values = ",".join(str(16 * n) for n in range(1, 40))
    with pytest.raises(InvalidInput, match=f"at most {spaces.MOST_CANDIDATES:,}.*lock mesh"):
        space_of(
            layout(target="tpu:v5p:16x16x16", mesh="4096"),
            STATE,
            (),
            [f"batch={values}", f"seq={values}", f"mlp={values}"],
        )


def test_a_prime_number_of_devices_has_meshes_of_one_axis():
    layouts = every(space_of(layout(target="plan", mesh="7"), STATE))
    assert {one.mesh_shape for one in layouts if len(one.mesh_shape) == 1} == {(7,)}
    assert all(sorted(one.mesh_shape)[-1] == 7 for one in layouts)


def test_a_model_without_named_dimensions_is_refused():
    with pytest.raises(InvalidInput, match="names no dimensions"):
        space_of(layout(), state(w=("params", "", ())))


@pytest.mark.parametrize(
    ("sizes", "locks", "vary"),
    [
        ({"stages": "2"}, (), ()),
        ({"stages": "4", "microbatches": "16"}, ("stage=4",), ()),
        ({"stages": "2"}, (), ("batch=16,32", "remat=none,full")),
        ({}, (), ("stages=1,4",)),
        ({}, (), ("stages=2,4", "microbatches=4,8")),
    ],
)
def test_stages_follow_their_mesh_axis_and_microbatches_vary(sizes, locks, vary):
    space = space_of(layout(batch="32", layers="12", **sizes), STATE, locks, vary)
    layouts = every(space)
    assert len(layouts) == space.count()
    on_stages = [dict(zip(one.axis_names, one.mesh_shape, strict=True)).get("stage", 1) for one in layouts]
    pipelines = [(one, stages) for one, stages in zip(layouts, on_stages, strict=True) if stages > 1]
    for one, stages in pipelines:
        assert one.sizes["stages"] == stages
        assert 12 % stages == 0 == one.sizes["batch"] % one.sizes["microbatches"]
        assert partition_spec(("stages", "batch", "seq", "embed"), one.rules)[0] == ("stage",)
    counts = {
        stages: {one.sizes["microbatches"] for one, own in pipelines if own == stages}
        for _, stages in pipelines
    }
    if "microbatches=4,8" in vary:
        assert counts == {2: {4, 8}, 4: {4, 8}}
    elif vary == ("stages=1,4",) or locks:
        assert counts == {4: {4, 8, 16, 32}}
    else:
        assert counts == {2: {2, 4, 8, 16}, 4: {4, 8, 16, 32}}
    if sizes == {"stages": "2"} and not vary:  # the layout itself, and others without a pipeline
        assert layouts[0].key() == space.layout.key()
        without = zip(layouts[1:], on_stages[1:], strict=True)
        assert {one.sizes["stages"] for one, stages in without if stages == 1} == {1}


def test_stages_do_not_vary_in_a_model_with_one():
    assert all("stage" not in one.axis_names for one in every(space_of(layout(), STATE)))
