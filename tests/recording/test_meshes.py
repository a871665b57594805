"""Random arrays on two meshes, compared with the shards that JAX gives each device."""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.audit import audit
from inspector.jobs.program_run import records
from inspector.recording import recorder
from inspector.recording.capture import capture
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from inspector.sharding import device_holdings
from inspector.sharding import placement as sharding
from inspector.sharding.meshes import MeshList, mesh_of_all_devices, meshes_text, number_of_devices
from inspector.sharding.totals import bytes_by_device, state_totals, totals
from inspector.text.errors import InvalidInput

SHAPE = (8, 12)
SIZES = [(2, 2), (1, 4), (4, 1), (2, 3), (4, 2), (1, 1), (2,), (4,), (6,)]


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    """Meshes of some devices in any order. All have the same axis names, so that mixing them up shows."""
    sizes = draw(st.sampled_from(SIZES))
    ids = draw(st.permutations(range(8)))[: math.prod(sizes)]
    devices = np.array([jax.devices()[id_] for id_ in ids]).reshape(sizes)
    return Mesh(devices, ("x", "y")[: len(sizes)])


@st.composite
def shardings(draw: st.DrawFn, mesh: Mesh) -> NamedSharding:
    names = draw(st.permutations(mesh.axis_names))
    places = [draw(st.sampled_from([None, 0, 1])) for _ in names]
    entries: list[tuple[str, ...]] = [(), ()]
    for name, place in zip(names, places, strict=True):
        if place is not None:
            entries[place] = (*entries[place], name)
    spec = P(*(entry or None for entry in entries))
    named_sharding = NamedSharding(mesh, spec)
    try:
        named_sharding.shard_shape(SHAPE)
    except ValueError:
        return NamedSharding(mesh, P())
    return named_sharding


@st.composite
def states(draw: st.DrawFn) -> dict[str, NamedSharding]:
    both = [draw(meshes()) for _ in range(2)]
    return {f"a{n}": draw(shardings(both[n % 2])) for n in range(draw(st.integers(2, 5)))}


def shard_of(named_sharding: NamedSharding, device: Any) -> tuple[tuple[int, int], ...] | None:
    index = named_sharding.devices_indices_map(SHAPE).get(device)
    if index is None:
        return None
    return tuple(part.indices(size)[:2] for part, size in zip(index, SHAPE, strict=True))


def elements(ranges: tuple[tuple[int, int], ...]) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(*one) for one in ranges)))


@given(states())
def test_bytes_of_each_device_are_those_of_jax(state: dict[str, NamedSharding]) -> None:
    result = capture(
        {path: jax.ShapeDtypeStruct(SHAPE, "float32", sharding=one) for path, one in state.items()},
        group="params",
    )
    expected: Counter[int] = Counter()
    for path, named_sharding in state.items():
        array = result.array(path)
        mesh = result.mesh_of(array)
        assert mesh is not None
        assert mesh.devices == tuple(device.id for device in named_sharding.mesh.devices.flat)
        assert sharding.shards(array, mesh) is not None
        for device in named_sharding.device_set:
            expected[device.id] += 4 * math.prod(named_sharding.shard_shape(SHAPE))
    assert bytes_by_device(result, result.arrays) == expected
    sums = totals(result, ("params",))
    assert (sums.per_device, sums.everywhere) == (max(expected.values()), expected.total())
    assert number_of_devices(result) == len({device for one in result.meshes for device in one.devices})
    for device, held in expected.items():
        assert device_holdings.holdings(result, [device]).bytes == held
    assert snapshot.from_json(json.loads(snapshot.dumps(result))) == result


@given(st.data())
def test_moved_bytes_are_those_that_a_device_did_not_have(data: st.DataObject) -> None:
    before, after = (data.draw(shardings(data.draw(meshes()))) for _ in range(2))
    moved = moves([(before, after, 3, 2)])
    expected = 0
    for device in after.device_set:
        wanted = elements(shard_of(after, device) or ((0, 0), (0, 0)))
        had = shard_of(before, device)
        expected += len(wanted - (elements(had) if had else set()))
    if not moved:  # each device holds the same
        assert expected == 0
        return
    (reshard,) = moved
    assert (reshard.moved, reshard.bytes) == (2 * 4 * expected, 2 * 4 * math.prod(SHAPE))
    assert (reshard.executions, reshard.count, reshard.line) == (3, 2, "train.py:7")
    assert all(source != target and size for source, target, size in reshard.routes or ())


class Count:
    def __init__(self, number: int) -> None:
        self.number = number

    def value(self) -> int:
        return self.number


def moves(rows: list[tuple[Any, Any, int, int]]) -> tuple[snapshot.Reshard, ...]:
    """Return the records of moves (before, after, executions, arrays), through a file as in a run."""
    counts = {
        ("device_put", ("/work/train.py", 7), (((a, b, SHAPE, np.dtype("float32")), arrays),)): (
            Count(executions)
        )
        for a, b, executions, arrays in rows
    }
    path = Path(tempfile.mkdtemp()) / "moves.json"
    path.write_text(json.dumps(recorder.plain(counts)))
    return records.read_reshards(path)


def test_a_single_device_has_no_mesh() -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    on_mesh = NamedSharding(mesh, P("x"))
    alone = jax.sharding.SingleDeviceSharding(jax.devices()[6])
    (reshard,) = moves([(on_mesh, alone, 1, 1)])
    assert (reshard.target_mesh, reshard.target_devices) == (None, (6,))
    assert reshard.moved == 4 * math.prod(SHAPE)


# --- What combines arrays on several meshes ---------------------------------------------------------


def two_meshes() -> Snapshot:
    """Return a large array that is replicated on the second mesh only. Both meshes have the axis `x`."""
    first = Mesh(np.array(jax.devices()[:4]), ("x",))
    second = Mesh(np.array(jax.devices()[4:6]), ("x",))
    shapes = {"a": (first, P("x")), "b": (first, P("x")), "c": (second, P())}
    return capture(
        {
            path: jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, spec))
            for path, (mesh, spec) in shapes.items()
        },
        group="params",
    )


def test_the_audit_is_of_each_mesh() -> None:
    snapshot = two_meshes()
    replicated = [finding for finding in audit(snapshot) if finding.code == "replicated-parameter"]
    assert [finding.array for finding in replicated] == ["c"]
    assert "mesh 2" in replicated[0].message and "2 devices" in replicated[0].message
    assert replicated[0].bytes == 64 * 64 * 4 // 2


def test_totals_are_of_the_device_with_the_most() -> None:
    snapshot = two_meshes()
    assert state_totals(snapshot).per_device == 64 * 64 * 4
    assert state_totals(snapshot).everywhere == 2 * 64 * 64 * 4 + 2 * 64 * 64 * 4
    first, second = snapshot.on_each_mesh()
    assert [array.path for array in first.arrays] == ["a", "b"]
    assert [array.path for array in second.arrays] == ["c"]
    assert second.mesh == snapshot.other_meshes[0] and second.other_meshes == ()
    every = mesh_of_all_devices(snapshot)
    assert every is not None and every.devices == (0, 1, 2, 3, 4, 5)


def test_meshes_have_numbers_and_devices() -> None:
    snapshot = two_meshes()
    text = "mesh 1: x 4, devices 0, 1, 2, 3; mesh 2: x 2, devices 4, 5"
    assert meshes_text(snapshot) == text
    joined = MeshList(snapshot.other_meshes)
    assert [array.mesh for array in joined.arrays(snapshot)] == [0, 0, None]
    assert joined.mesh == snapshot.other_meshes[0] and joined.other_meshes == (snapshot.mesh,)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("arrays", 1, ["arrays[2].mesh is 1", "0 to 0"]),
        ("other_meshes", [], ["arrays[2].mesh is 0", "null without other_meshes"]),
        ("mesh", None, ["other_meshes", "must have a mesh"]),
    ],
)
def test_a_file_whose_meshes_do_not_fit_is_refused(key: str, value: Any, words: list[str]) -> None:
    plain = two_meshes().to_json()
    if key == "arrays":
        plain["arrays"][2]["mesh"] = value
    else:
        plain[key] = value
    with pytest.raises(InvalidInput) as error:
        snapshot.from_json(plain)
    assert all(word in str(error.value) for word in words), error.value
