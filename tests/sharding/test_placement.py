"""Shards computed by integer arithmetic are those that JAX itself makes, device by device."""

from __future__ import annotations

import json
import math
from itertools import product

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.records.snapshot import Array, Mesh, MeshAxis, Shard, Spec
from inspector.sharding import placement as sharding
from tests.paths import CASES

pytestmark = pytest.mark.close_to_jax

CASES = CASES / "jax" / "sharding_cases.json"

MOST_DEVICES = 16  # the number in tests/conftest.py
MESH_SHAPES = [
    shape
    for rank in range(1, 5)
    for shape in product((1, 2, 3, 4, 5, 8, 16), repeat=rank)
    if math.prod(shape) <= MOST_DEVICES
]
DTYPES = ("float32", "bfloat16", "float16", "int8", "uint32", "bool", "complex64")


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    shape = draw(st.sampled_from(MESH_SHAPES))
    devices = draw(st.permutations(range(MOST_DEVICES)))[: math.prod(shape)]
    return Mesh(
        axes=tuple(MeshAxis(name, size) for name, size in zip("abcd", shape, strict=False)),
        devices=tuple(devices),
    )


@st.composite
def specs(draw: st.DrawFn, mesh: Mesh, rank: int) -> Spec:
    """Each mesh axis goes to some dimension or to none; None and () both leave one whole."""
    entries: list[list[str]] = [[] for _ in range(rank)]
    for axis in draw(st.permutations(mesh.axis_names)):
        dimension = draw(st.integers(-1, rank - 1))
        if dimension >= 0:
            entries[dimension].append(axis)
    return tuple(tuple(axes) or draw(st.sampled_from((None, ()))) for axes in entries)


@st.composite
def placements(draw: st.DrawFn, divisible: bool) -> tuple[tuple[int, ...], Spec, Mesh]:
    mesh = draw(meshes())
    spec = draw(specs(mesh, draw(st.integers(0, 5))))
    if divisible:
        shape = tuple(mesh.ways(axes) * draw(st.integers(0, 3)) for axes in spec)
    else:
        shape = tuple(draw(st.integers(0, 12)) for _ in spec)
    return shape, spec, mesh


def jax_sharding(spec: Spec, mesh: Mesh) -> jax.sharding.NamedSharding:
    by_id = {device.id: device for device in jax.devices()}
    devices = np.array([by_id[device] for device in mesh.devices]).reshape(mesh.shape)
    return jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, mesh.axis_names), jax.sharding.PartitionSpec(*spec)
    )


def ranges(index: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def computed_shards(shape: tuple[int, ...], spec: Spec, mesh: Mesh) -> tuple[Shard, ...]:
    shards = sharding.shards(Array("a", "other", shape, "float32", spec=spec), mesh)
    assert shards is not None
    return shards


@given(placements(divisible=True), st.sampled_from(DTYPES))
def test_shards_are_those_of_a_real_jax_array(case: tuple[tuple[int, ...], Spec, Mesh], dtype: str) -> None:
    shape, spec, mesh = case
    expected = jax_sharding(spec, mesh)
    array = jax.device_put(np.zeros(shape, dtype=jax.numpy.dtype(dtype)), expected)
    computed = computed_shards(shape, spec, mesh)

    assert sharding.shard_shape(shape, spec, mesh) == expected.shard_shape(shape)
    assert {shard.device: shard.index for shard in computed} == {
        device.id: ranges(index, shape) for device, index in expected.devices_indices_map(shape).items()
    }
    bytes_per_device = math.prod(sharding.shard_shape(shape, spec, mesh)) * array.dtype.itemsize
    assert {(shard.device, shard.index, shard.replica, bytes_per_device) for shard in computed} == {
        (shard.device.id, ranges(shard.index, shape), shard.replica_id, shard.data.nbytes)
        for shard in array.addressable_shards
    }
    assert [shard.device for shard in computed] == [d.id for d in expected.mesh.devices.flat]


@given(placements(divisible=True), st.data())
def test_more_axes_give_each_device_a_part_of_its_shard(
    case: tuple[tuple[int, ...], Spec, Mesh], data: st.DataObject
) -> None:
    shape, spec, mesh = case
    axes = data.draw(st.lists(st.sampled_from(mesh.axis_names), unique=True))
    more = sharding.on_more_axes(shape, spec, axes, mesh.sizes)
    before, after = (jax_sharding(one, mesh).devices_indices_map(shape) for one in (spec, more))
    for device, index in after.items():
        outer = ranges(before[device], shape)
        for (start, stop), (first, last) in zip(ranges(index, shape), outer, strict=True):
            assert first <= start <= stop <= last
    used = [axis for names in more for axis in names or ()]
    kept = [axis for names in spec for axis in names or ()]
    assert len(used) == len(set(used)) and set(kept) <= set(used) <= {*kept, *axes}
    # An axis is left out only if it divides no dimension.
    for axis in set(axes) - set(used):
        piece = sharding.shard_shape(shape, more, mesh)
        assert all(size % mesh.sizes[axis] or size == 0 for size in piece)


@given(placements(divisible=False))
def test_jax_refuses_exactly_the_indivisible_shapes(
    case: tuple[tuple[int, ...], Spec, Mesh],
) -> None:
    shape, spec, mesh = case
    expected = jax_sharding(spec, mesh)
    uneven = list(sharding.indivisible(shape, spec, mesh))
    if not uneven:
        assert sharding.shard_shape(shape, spec, mesh) == expected.shard_shape(shape)
        return
    for ask in (
        lambda: expected.shard_shape(shape),
        lambda: jax.device_put(np.zeros(shape), expected),
    ):
        with pytest.raises(ValueError, match=rf"array axis {uneven[0].dimension} .*partitioned"):
            ask()
    with pytest.raises(ValueError, match=f"dimension {uneven[0].dimension} of size"):
        sharding.shard_shape(shape, spec, mesh)
    assert sharding.shards(Array("a", "other", shape, "int8", spec=spec), mesh) is None
    # Each named dimension is at fault by itself, and no other is.
    at_fault = {indivisible.dimension for indivisible in uneven}
    for dimension, axes in enumerate(spec):
        alone = tuple(axes if other == dimension else None for other in range(len(spec)))
        if dimension in at_fault:
            with pytest.raises(ValueError, match="partitioned"):
                jax_sharding(alone, mesh).shard_shape(shape)
        else:
            jax_sharding(alone, mesh).shard_shape(shape)


@given(placements(divisible=True))
def test_blocks_partition_the_array(
    case: tuple[tuple[int, ...], Spec, Mesh],
) -> None:
    """Count the devices that hold each element."""
    shape, spec, mesh = case
    placement = sharding.place(shape, spec, mesh)
    held = np.zeros(shape, dtype=np.int64)
    index_of_block: dict[int, set[tuple[tuple[int, int], ...]]] = {}
    for start, stop, block in zip(
        placement.starts.tolist(), placement.stops.tolist(), placement.block.tolist(), strict=True
    ):
        held[tuple(map(slice, start, stop))] += 1
        index_of_block.setdefault(block, set()).add(tuple(zip(start, stop, strict=True)))
    assert np.all(held == sharding.replicas(spec, mesh))
    assert sorted(index_of_block) == list(range(placement.blocks))
    assert all(len(indices) == 1 for indices in index_of_block.values())
    distinct = [next(iter(index_of_block[block])) for block in range(placement.blocks)]
    assert len(set(distinct)) == placement.blocks
    assert distinct == sorted(distinct)  # numbered in row-major order of their place

    holders = sharding.devices_by_block(placement, mesh)
    assert sorted(device for held_by in holders for device in held_by) == sorted(mesh.devices)
    position = {device: place for place, device in enumerate(mesh.devices)}
    for block, devices in enumerate(holders):
        places = [position[device] for device in devices]
        assert places == sorted(places)
        assert placement.block[places].tolist() == [block] * len(places)
        assert placement.replica[places].tolist() == list(range(len(places)))


@given(placements(divisible=True))
def test_explicit_shards_have_the_placement_of_the_spec(
    case: tuple[tuple[int, ...], Spec, Mesh],
) -> None:
    shape, spec, mesh = case
    explicit = computed_shards(shape, spec, mesh)
    by_spec = sharding.place(shape, spec, mesh)
    # The order in which a file lists the shards must not matter.
    array = Array("a", "other", shape, "int8", shards=tuple(reversed(explicit)))
    by_shards = sharding.place_array(array, mesh)
    assert by_shards is not None
    for name in ("starts", "stops", "block", "replica"):
        np.testing.assert_array_equal(getattr(by_shards, name), getattr(by_spec, name))


def test_shards_that_leave_a_device_out_place_nothing() -> None:
    mesh = Mesh((MeshAxis("a", 2),), (4, 7))
    array = Array("a", "other", (2,), "int8", shards=(Shard(4, ((0, 1),), 0),))
    assert sharding.place_array(array, mesh) is None
    assert sharding.shards(array, mesh) == array.shards


def test_an_array_without_spec_or_shards_is_not_known() -> None:
    mesh = Mesh((MeshAxis("a", 2),), (0, 1))
    assert sharding.place_array(Array("a", "other", (2,), "int8"), mesh) is None
    assert sharding.shards(Array("a", "other", (2,), "int8"), mesh) is None


def test_processes_go_with_their_devices() -> None:
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)), (5, 4, 7, 6), processes=(1, 1, 0, 0))
    array = Array("a", "other", (4,), "int8", spec=(("b",),))
    shards = sharding.shards(array, mesh)
    assert shards == (
        Shard(5, ((0, 2),), 0, 1),
        Shard(4, ((2, 4),), 0, 1),
        Shard(7, ((0, 2),), 1, 0),
        Shard(6, ((2, 4),), 1, 0),
    )


def test_a_mesh_without_axes_is_one_device() -> None:
    mesh = Mesh((), (3,))
    assert computed_shards((2, 2), (None, None), mesh) == (Shard(3, ((0, 2), (0, 2)), 0),)


def test_more_mesh_axes_than_numpy_has_dimensions() -> None:
    names = [f"axis_{i}" for i in range(70)]
    mesh = Mesh(tuple(MeshAxis(name, 2 if name == "axis_69" else 1) for name in names), (0, 1))
    shards = computed_shards((2,), (("axis_0", "axis_69"),), mesh)
    assert [shard.index for shard in shards] == [((0, 1),), ((1, 2),)]


def test_the_default_layout_as_the_guide_has_it() -> None:
    """Mesh 2×4, W1 split four ways: devices (0,4) (1,5) (2,6) (3,7) hold the same blocks."""
    mesh = Mesh((MeshAxis("data", 2), MeshAxis("model", 4)), tuple(range(8)))
    placement = sharding.place((1024, 1024), (None, ("model",)), mesh)
    assert sharding.devices_by_block(placement, mesh) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def published_cases() -> list[dict]:
    if not CASES.exists():
        return []
    return json.loads(CASES.read_text(encoding="utf-8"))["cases"]


@pytest.mark.skipif(not CASES.exists(), reason="the folder of published cases is not here")
@pytest.mark.parametrize("case", published_cases(), ids=lambda case: case["id"])
def test_published_case_of_jax(case: dict) -> None:
    shape = tuple(case["shape"])
    axes = zip(case["axis_names"], case["mesh_shape"], strict=True)
    mesh = Mesh(
        tuple(MeshAxis(name, size) for name, size in axes),
        tuple(range(math.prod(case["mesh_shape"]))),
    )
    assert case["device_order"] == "iota"
    entries = [(entry,) if isinstance(entry, str) else entry for entry in case["spec"]]
    spec = tuple(tuple(entry) if entry else None for entry in entries)
    if len(spec) > len(shape):
        # A Snapshot's spec has one entry per dimension, so it cannot contain this one.
        assert case["expected"]["raises"].startswith("ValueError")
        with pytest.raises(ValueError):
            sharding.shard_shape(shape, spec, mesh)
        return
    spec += (None,) * (len(shape) - len(spec))
    expected, ran = case["expected"], case["ran_jax_0.10.2"]
    if "raises" in expected:
        assert expected["raises"] == "IndivisibleError"
        with pytest.raises(ValueError, match="not divisible"):
            sharding.shard_shape(shape, spec, mesh)
        return
    shards = computed_shards(shape, spec, mesh)

    def whole(index: list) -> tuple[tuple[int, int], ...]:
        return tuple(tuple(r or (0, size)) for r, size in zip(index, shape, strict=True))

    for answer in (expected, ran):
        if "shard_shape" in answer:
            assert list(sharding.shard_shape(shape, spec, mesh)) == answer["shard_shape"]
        if "is_fully_replicated" in answer:
            assert (sharding.place(shape, spec, mesh).blocks == 1) == answer["is_fully_replicated"]
    if "index_of_shard_0_and_1" in expected:
        assert [s.index for s in shards[:2]] == [whole(i) for i in expected["index_of_shard_0_and_1"]]
        assert [s.replica for s in shards] == expected["replica_ids_by_device_0_to_7"]
    assert {str(s.device): s.index for s in shards} == {
        device: whole(index) for device, index in ran["index_by_device_id"].items()
    }


def test_partial_sums_are_no_replicas() -> None:
    """An unreduced axis: devices that differ on it hold different data, and are no copies."""
    import jax
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    from inspector.prediction import memory
    from inspector.recording.capture import capture
    from inspector.sharding.placement import shards as shards_of
    from inspector.sharding.sharding_text import array_spec_text

    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=(AxisType.Explicit,) * 3)
    for axes, copies in (((), 4), (("y",), 2), (("y", "z"), 1)):
        spec = P("x", None, unreduced=set(axes)) if axes else P("x", None)
        value = jax.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, spec))
        snapshot = capture({"params": {"w": value}})
        (array,) = snapshot.arrays
        placed = shards_of(array, snapshot.mesh)
        assert placed is not None
        numbers = [shard.replica for shard in placed]
        assert sorted(set(numbers)) == list(range(copies)) and array.replicas == copies
        assert memory.bytes_everywhere(array, snapshot.mesh) == 8 * array.bytes_per_device
        assert ("unreduced" in array_spec_text(array)) == bool(axes)
