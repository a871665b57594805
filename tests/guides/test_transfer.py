"""The bytes that move are those that a count of every element on JAX's own arrays gives."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.guides.transfer import in_words, moving_elements, of_array, parts, totals, transfer
from inspector.records.snapshot import Array, Mesh, MeshAxis, Shard, Snapshot, Source, Spec
from inspector.sharding import placement
from inspector.text.errors import InvalidInput
from tests.guides.routes import dense

MOST_DEVICES = 16  # the number in tests/conftest.py
MESH_SHAPES = [
    shape
    for rank in (1, 2, 3)
    for shape in itertools.product((1, 2, 3, 4, 8), repeat=rank)
    if math.prod(shape) <= MOST_DEVICES
]
SOURCE = Source("plan", "plan", "2026-01-01T00:00:00+00:00")


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    """Any device may be anywhere on the mesh, so that meshes share some devices and not others."""
    shape = draw(st.sampled_from(MESH_SHAPES))
    devices = draw(st.permutations(range(MOST_DEVICES)))[: math.prod(shape)]
    axes = tuple(MeshAxis(name, size) for name, size in zip("abc", shape, strict=False))
    return Mesh(axes, tuple(devices))


@st.composite
def placed(draw: st.DrawFn, mesh: Mesh, shape: tuple[int, ...]) -> Spec:
    """A spec whose ways divide the shape."""
    entries: list[list[str]] = [[] for _ in shape]
    for axis in draw(st.permutations(mesh.axis_names)):
        dimension = draw(st.integers(-1, len(shape) - 1))
        if dimension >= 0:
            longer = (*entries[dimension], axis)
            if shape[dimension] % mesh.ways(longer) == 0:
                entries[dimension].append(axis)
    return tuple(tuple(axes) or None for axes in entries)


@st.composite
def changes(draw: st.DrawFn) -> tuple[tuple[int, ...], Mesh, Spec, Mesh, Spec]:
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 6, 8, 12, 24]), max_size=3)))
    old, new = draw(meshes()), draw(meshes())
    return shape, old, draw(placed(old, shape)), new, draw(placed(new, shape))


def held_state(mesh: Mesh, *arrays: Array) -> Snapshot:
    return Snapshot(SOURCE, None, mesh, arrays)


def array(shape: tuple[int, ...], spec: Spec | None, path: str = "params/w") -> Array:
    """A float32 array of the train state."""
    return Array(path, "params", shape, "float32", spec=spec, bytes=4 * math.prod(shape))


def jax_shards(shape: tuple[int, ...], spec: Spec, mesh: Mesh) -> list:
    by_id = {device.id: device for device in jax.devices()}
    devices = np.array([by_id[device] for device in mesh.devices]).reshape(mesh.shape)
    chosen = jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, mesh.axis_names), jax.sharding.PartitionSpec(*spec)
    )
    return jax.device_put(np.zeros(shape, np.int8), chosen).addressable_shards


def counted_routes(old_shards: list, new_shards: list, shape: tuple[int, ...]) -> Counter:
    """(source, target) -> elements, by looking at each element of each new shard by itself."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    holds = {shard.device.id: set(numbers[shard.index].flat) for shard in old_shards}
    replica_0 = {
        number: shard.device.id
        for shard in old_shards
        if shard.replica_id == 0
        for number in numbers[shard.index].flat
    }
    routes: Counter = Counter()
    for shard in new_shards:
        target = shard.device.id
        for number in numbers[shard.index].flat:
            stays = number in holds.get(target, ())
            routes[target if stays else replica_0[number], target] += 1
    return routes


@given(changes())
def test_routes_agree_with_jax_element_by_element(case) -> None:
    shape, old, old_spec, new, new_spec = case
    result = transfer(held_state(old, array(shape, old_spec)), held_state(new, array(shape, new_spec)))
    old_shards, new_shards = jax_shards(shape, old_spec, old), jax_shards(shape, new_spec, new)
    expected = counted_routes(old_shards, new_shards, shape)
    assert {(s, t): size for s, t, size in result.routes} == {
        route: 4 * count for route, count in expected.items()
    }
    (row,) = result.arrays
    assert row.bytes == 4 * math.prod(shape)
    assert row.kept == 4 * sum(count for (s, t), count in expected.items() if s == t)
    assert row.moved == 4 * sum(count for (s, t), count in expected.items() if s != t)


@given(changes())
def test_each_device_gets_its_new_shard_from_devices_that_hold_it(
    case,
) -> None:
    shape, old, old_spec, new, new_spec = case
    before, after = placement.place(shape, old_spec, old), placement.place(shape, new_spec, new)
    matrix = moving_elements(before, after, old, new)
    assert matrix.min(initial=0) >= 0
    assert (matrix.sum(axis=0) == np.prod(after.stops - after.starts, axis=1)).all()
    for source, target in np.argwhere(matrix):
        low = np.maximum(before.starts[source], after.starts[target])
        high = np.minimum(before.stops[source], after.stops[target])
        in_common = np.prod(np.maximum(high - low, 0))
        assert matrix[source, target] <= in_common
        if old.devices[source] == new.devices[target]:
            assert matrix[source, target] == in_common, "all that a device had must stay"
        else:
            assert before.replica[source] == 0, "only replica 0 sends"


@given(changes())
def test_nothing_moves_without_a_change(case) -> None:
    shape, mesh, spec, *_ = case
    state = held_state(mesh, array(shape, spec))
    result = transfer(state, state)
    assert totals(result).moved == 0
    assert all(source == target for source, target, _ in result.routes)
    assert in_words(result).startswith("Nothing has to move")


@given(changes())
def test_moved_and_kept_parts_form_the_new_shards(case) -> None:
    shape, old, old_spec, new, new_spec = case
    before, after = (
        held_state(old, array(shape, old_spec)),
        held_state(new, array(shape, new_spec)),
    )
    numbers = np.arange(1, math.prod(shape) + 1).reshape(shape)
    held = {shard.device.id: numbers[shard.index] for shard in jax_shards(shape, new_spec, new)}
    lying = {shard.device.id: shard for shard in jax_shards(shape, old_spec, old)}
    put = {device: np.zeros_like(numbers) for device in held}
    for (source, target), ranges in parts(before, after, "params/w").items():
        index = tuple(slice(*part) for part in ranges)
        assert (put[target][index] == 0).all(), "an element came twice"
        put[target][index] = numbers[index]
        assert set(numbers[index].flat) <= set(numbers[lying[source].index].flat)
    for device, wanted in held.items():
        assert sorted(put[device][put[device] > 0].flat) == sorted(wanted.flat)


def test_one_array_alone() -> None:
    cut, whole = (("a",),), (None,)
    before = held_state(mesh_of(2), array((8,), cut), array((4,), whole, "params/b"))
    after = held_state(mesh_of(2), array((8,), whole), array((4,), whole, "params/b"))
    assert totals(of_array(before, after, "params/w")).moved == 32
    assert totals(of_array(before, after, "params/b")).moved == 0
    assert parts(before, after, "params/w")[1, 0] == ((4, 8),)
    with pytest.raises(InvalidInput, match="no array 'params/x'"):
        of_array(before, after, "params/x")


def mesh_of(*shape: int, first: int = 0) -> Mesh:
    axes = tuple(MeshAxis(name, size) for name, size in zip("abc", shape, strict=False))
    return Mesh(axes, tuple(range(first, first + math.prod(shape))))


def test_a_worked_example() -> None:
    # W1 of the default layout, columns over four devices and two copies, to half as many parts.
    old = held_state(mesh_of(2, 4), array((8, 8), (None, ("b",))))
    new = held_state(mesh_of(4, 2), array((8, 8), (None, ("b",))))
    result = transfer(old, new)
    # A column pair is 64 bytes. New device 0 needs columns 0–3 and has 0–1; device 1 has 2–3.
    # New device 2 wants them, too, and has columns 4–5, which it does not need.
    assert [route for route in result.routes if route[1] in (0, 2)] == [
        (0, 0, 64), (0, 2, 64), (1, 0, 64), (1, 2, 64),
    ]  # fmt: skip
    assert dense(result).sum(axis=0).tolist() == [128] * 8
    # Devices 0, 3, 4 and 7 hold half of their new shard; the others hold none of it.
    assert totals(result).kept == 4 * 64 and totals(result).moved == 12 * 64
    assert in_words(result) == (
        "75% of 1.0 KiB on 8 devices must move: 768 B from 4 devices to 8 devices, "
        "at most 128 B to each of 4 devices. 256 B stay."
    )


def test_devices_of_one_mesh_only_send_or_receive_only() -> None:
    whole = array((8,), (None,))
    cut = array((8,), (("a",),))
    fewer = transfer(held_state(mesh_of(8), cut), held_state(mesh_of(2), cut))
    assert set(fewer.sources) - set(fewer.targets) == set(range(2, 8))
    assert {target for _, target, _ in fewer.routes} == {0, 1}
    assert dense(fewer).shape == (8, 2) and dense(fewer).sum() == 32
    more = transfer(held_state(mesh_of(2), cut), held_state(mesh_of(4), whole))
    assert dense(more).tolist() == [[16, 16, 16, 16], [16, 16, 16, 16]]
    assert totals(more) == totals(replace(more)) and totals(more).receivers == 4
    apart = transfer(held_state(mesh_of(2), cut), held_state(mesh_of(2, first=2), cut))
    assert totals(apart).kept == 0 and totals(apart).moved == 32
    assert in_words(apart).endswith("Nothing stays.")


def test_only_the_train_state_counts_and_arrays_are_summed() -> None:
    mesh, other = mesh_of(2), mesh_of(1)
    cut = (("a",),)
    arrays = (array((8,), cut), array((4,), cut, "opt_state/mu"), array((), (), "step"))
    batch = Array("batch/x", "batch", (100,), "float32", spec=(None,), bytes=400)
    result = transfer(held_state(mesh, *arrays, batch), held_state(other, *arrays))
    assert [(row.path, row.bytes, row.kept, row.moved) for row in result.arrays] == [
        ("params/w", 32, 16, 16), ("opt_state/mu", 16, 8, 8), ("step", 4, 4, 0),
    ]  # fmt: skip
    assert totals(result).all == sum(row.kept + row.moved for row in result.arrays)


def test_explicit_shards_are_taken_as_they_are() -> None:
    shards = (Shard(0, ((0, 3),), 0), Shard(1, ((3, 8),), 0))
    uneven = replace(array((8,), None), shards=shards)
    result = transfer(held_state(mesh_of(2), uneven), held_state(mesh_of(2), array((8,), (("a",),))))
    assert result.routes == ((0, 0, 12), (1, 0, 4), (1, 1, 16))


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            array((8,), (None,)),
            array((4,), (None,)),
            r"shape of 'params/w' is '\(8,\)' in the saved",
        ),
        (
            array((8,), (None,)),
            replace(array((8,), (None,)), dtype="int32"),
            "dtype of 'params/w' is 'float32' in the saved and 'int32' in the restored",
        ),
        (
            array((8,), (None,)),
            array((8,), (None,), "params/v"),
            "only the (saved|restored) train state has 'params/[wv]'",
        ),
        (
            array((9,), (("a",),)),
            array((9,), (None,)),
            "the placement of 'params/w' in the saved layout is unknown",
        ),
        (
            array((8,), (None,)),
            replace(array((8,), None), shards=(Shard(0, ((0, 5),), 0), Shard(1, ((4, 8),), 0))),
            "the placement of 'params/w' in the restored layout is unknown",
        ),
        (
            array((8,), (None,)),
            replace(array((8,), None), shards=(Shard(0, ((0, 2),), 0), Shard(1, ((4, 8),), 0))),
            "the placement of 'params/w' in the restored layout is unknown",
        ),
        (
            replace(array((8,), (None,)), bytes=None),
            replace(array((8,), (None,)), bytes=None),
            "the bytes of one element of 'params/w' are unknown",
        ),
        (
            array((2**31, 2**31), (None, None)),
            array((2**31, 2**31), (None, None)),
            "the train state is too large",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(before: Array, after: Array, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        transfer(held_state(mesh_of(2), before), held_state(mesh_of(2), after))


def test_an_unknown_mesh_is_refused() -> None:
    known = held_state(mesh_of(2), array((8,), (None,)))
    with pytest.raises(InvalidInput, match="the mesh of the saved train state is unknown"):
        transfer(replace(known, mesh=None), known)
