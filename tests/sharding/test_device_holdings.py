"""Tests of the data on devices: it agrees with JAX's placement of the same arrays."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from inspector.records.snapshot import Array, Mesh, MeshAxis, Shard, Snapshot, Source
from inspector.sharding import device_holdings
from inspector.sharding import placement as sharding
from inspector.text.errors import InvalidInput

AXES = ("data", "model", "pipe")
SHAPE = (2, 2, 2)
MESH = Mesh(tuple(map(MeshAxis, AXES, SHAPE)), tuple(range(8)), processes=(0, 0, 0, 0, 1, 1, 1, 1))

specs = st.permutations(AXES).flatmap(
    lambda axes: st.tuples(st.integers(0, 3), st.integers(0, 3)).map(
        lambda cut: (tuple(axes[: min(cut)]) or None, tuple(axes[min(cut) : max(cut)]) or None)
    )
)


def made(*arrays: Array, mesh: Mesh = MESH) -> Snapshot:
    return Snapshot(Source("capture", None, "2026-01-01"), None, mesh, arrays)


def array(path: str, shape: tuple[int, ...], spec, group: str = "params") -> Array:
    return Array(path, group, shape, "float32", spec=spec, bytes=4 * math.prod(shape))


def pieces_of_jax(array: Array) -> dict[int, tuple]:
    """Return the index ranges that each device holds according to JAX."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(SHAPE), AXES)
    entries = [axes if axes is None or len(axes) > 1 else axes[0] for axes in array.spec]
    where = NamedSharding(mesh, PartitionSpec(*entries)).devices_indices_map(array.shape)
    return {
        device.id: tuple(part.indices(size)[:2] for part, size in zip(index, array.shape, strict=True))
        for device, index in where.items()
    }


@given(st.lists(specs, min_size=1, max_size=3), st.sets(st.integers(0, 7), min_size=1))
def test_holdings_agree_with_jax(all_specs, devices) -> None:
    arrays = [array(f"params/{n}", (8, 16), spec) for n, spec in enumerate(all_specs)]
    held = device_holdings.holdings(made(*arrays), sorted(devices))
    assert held.devices == tuple(sorted(devices)) and held.unknown == ()
    for one, piece in zip(arrays, held.pieces, strict=True):
        where = pieces_of_jax(one)
        mine = {where[device] for device in devices}
        others = {device for device in where if device not in devices}
        assert set(piece.index) == mine and len(piece.index) == len(mine)
        sizes = {index: 4 * math.prod(b - a for a, b in index) for index in mine}
        assert piece.bytes == sum(sizes.values())
        assert set(piece.holders) == {other for other in others if where[other] in mine}


@given(st.lists(specs, min_size=1, max_size=3))
def test_copies_agree_with_holdings(all_specs) -> None:
    snapshot = made(*(array(f"params/{n}", (8, 16), spec) for n, spec in enumerate(all_specs)))
    for at, device in enumerate(MESH.devices):
        held = device_holdings.holdings(snapshot, [device])
        copies = device_holdings.copies_of(snapshot, [device])
        assert copies[at] == held.bytes
        for other, size in zip(MESH.devices, copies.tolist(), strict=True):
            shared = sum(piece.bytes for piece in held.pieces if other == device or other in piece.holders)
            assert size == shared


def test_holdings_of_a_process_and_of_all_devices() -> None:
    snapshot = made(
        array("params/whole", (8, 8), (None, None)),
        array("params/rows", (8, 8), (("data",), None)),
        array("opt/all", (8, 8), (("data", "model", "pipe"), None), group="opt_state"),
    )
    second = device_holdings.devices_of_process(snapshot, 1)
    assert second == (4, 5, 6, 7)
    held = device_holdings.holdings(snapshot, second)
    # `data` separates the processes: half of `rows` and of `all` has no other copy.
    assert [piece.holders for piece in held.pieces] == [(0, 1, 2, 3), (), ()]
    everything = device_holdings.holdings(snapshot, MESH.devices)
    assert everything.bytes == 3 * 256
    assert device_holdings.holdings(snapshot, [0], ("opt_state",)).bytes == 32


def test_explicit_shards_and_unknown_placement() -> None:
    shards = (
        Shard(0, ((0, 6), (0, 4)), 0),
        Shard(3, ((6, 8), (0, 4)), 0),
        Shard(5, ((0, 6), (0, 4)), 1),
    )
    uneven = Array("params/u", "params", (8, 4), "float32", shards=shards, bytes=128)
    snapshot = made(uneven, Array("params/bare", "params", None, "float32", spec=(("data",),)))
    held = device_holdings.holdings(snapshot, [3])
    (piece,) = held.pieces
    assert (piece.bytes, piece.holders, piece.index) == (32, (), (((6, 8), (0, 4)),))
    assert held.unknown == ("params/bare",)
    assert device_holdings.holdings(snapshot, [1]).pieces == ()
    assert device_holdings.holdings(snapshot, [0]).pieces[0].holders == (5,)
    assert device_holdings.copies_of(snapshot, [0, 3]).tolist() == [96, 0, 0, 32, 0, 96, 0, 0]
    nameless = made(Array("params/x", "params", (8, 8), "unknown", spec=(("data",), None)))
    unknown = device_holdings.holdings(nameless, [0])
    assert unknown.bytes is None and len(unknown.pieces[0].holders) == 3


def test_invalid_requests() -> None:
    snapshot = made(array("params/x", (8, 8), (None, None)))
    with pytest.raises(InvalidInput, match="device is 9, but the mesh has 8 devices"):
        device_holdings.holdings(snapshot, [9])
    with pytest.raises(InvalidInput, match="at least one device"):
        device_holdings.holdings(snapshot, [])
    with pytest.raises(InvalidInput, match="process is 2, but must be one of those in the Snapshot: 0, 1"):
        device_holdings.devices_of_process(snapshot, 2)
    with pytest.raises(InvalidInput, match="no mesh"):
        device_holdings.copies_of(Snapshot(snapshot.source, None, None, ()), [0])


def test_512_devices_agree_with_the_placement_of_each_array() -> None:
    mesh = Mesh(tuple(map(MeshAxis, AXES, (8, 8, 8))), tuple(range(512)))
    choices = [None, ("data",), ("model",), ("pipe",), ("data", "pipe")]
    arrays = [
        array(f"params/{n}", (64, 64), spec)
        for n, spec in enumerate(itertools.product(choices, [None, ("model",)]))
        if spec[0] != ("model",) or spec[1] is None
    ]
    snapshot = made(*arrays, mesh=mesh)
    result = sum(array.bytes // sharding.place(array.shape, array.spec, mesh).blocks for array in arrays)
    assert device_holdings.copies_of(snapshot, mesh.devices).tolist() == [result] * 512
    # Only the array that all three axes shard has no copies.
    (only,) = [piece for piece in device_holdings.holdings(snapshot, [511]).pieces if not piece.holders]
    assert only.bytes == 64 * 64 * 4 // 512


def test_an_array_in_host_memory_is_on_no_device() -> None:
    placed = array("params/kernel", (8, 16), ((AXES[0],), None))
    host = Array("step", "other", (), "int32", bytes=4, shards=())
    held = device_holdings.holdings(made(placed, host), [0])
    assert held.unknown == ()
    assert [piece.path for piece in held.pieces] == ["params/kernel"]
