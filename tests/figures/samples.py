"""Meshes, arrays and Snapshots as a producer gives them, built from plain numbers, without JAX."""

from __future__ import annotations

import dataclasses
import math

from inspector.records.snapshot import Array, Mesh, MeshAxis, Program, Seconds, Shard, Snapshot, Source, Spec

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "int32": 4, "uint32": 4}


def mesh(processes: int = 1, **axes: int) -> Mesh:
    """A mesh of emulated devices; its processes hold equal runs of devices."""
    count = math.prod(axes.values())
    return Mesh(
        axes=tuple(MeshAxis(name, size) for name, size in axes.items()),
        devices=tuple(range(count)),
        processes=tuple(device * processes // count for device in range(count)),
        device_kind="cpu",
    )


def array(
    path: str,
    shape: tuple[int, ...],
    spec: Spec,
    on: Mesh,
    logical_axes: tuple[str | None, ...] | None = None,
    dtype: str = "float32",
) -> Array:
    """An array with all of its numbers, counted here by plain multiplication."""
    group = path.split("/")[0]
    ways = [on.ways(axes) for axes in spec]
    shard = tuple(size // way for size, way in zip(shape, ways, strict=True))
    return Array(
        path=path,
        group=group if group in ("params", "opt_state", "batch", "output") else "other",
        shape=shape,
        dtype=dtype,
        logical_axes=logical_axes,
        spec=spec,
        shard_shape=shard,
        bytes=math.prod(shape) * ITEM_BYTES[dtype],
        bytes_per_device=math.prod(shard) * ITEM_BYTES[dtype],
        replicas=on.size // math.prod(ways),
    )


DEFAULT_MESH = mesh(data=2, model=4)
LARGE_MESH = mesh(data=8, model=64)
HOSTILE_PATH = "params/<img src=x onerror=alert(1)>/$x^2$"
W1: Spec = (None, ("model",))
W2: Spec = (("model",), None)


def kernel(on: Mesh = DEFAULT_MESH, depth: int = 1024) -> Array:
    return array("params/DotReluDot_0/Dense_0/kernel", (depth, depth), W1, on, ("embed", "hidden"))


def mlp_state(on: Mesh = DEFAULT_MESH, layers: int = 4, depth: int = 1024) -> tuple[Array, ...]:
    """The TrainState of the default MLP: step, parameters, Adam's count and moments."""
    arrays = [array("step", (), (), on, dtype="int32")]
    for prefix in ("params", "opt_state/0/mu", "opt_state/0/nu"):
        for layer in range(layers):
            block = f"{prefix}/DotReluDot_{layer}"
            arrays.append(array(f"{block}/Dense_0/kernel", (depth, depth), W1, on, ("embed", "hidden")))
            arrays.append(array(f"{block}/W2", (depth, depth), W2, on, ("hidden", "embed")))
    arrays.append(array("opt_state/0/count", (), (), on, dtype="int32"))
    return tuple(arrays)


def snapshot(on: Mesh = DEFAULT_MESH, arrays: tuple[Array, ...] | None = None) -> Snapshot:
    steps = tuple(0.070 + 0.0007 * (number * 7 % 11) for number in range(20))
    return Snapshot(
        source=Source("cpu", "cpu", "2026-01-01T00:00:00Z"),
        layout=None,
        mesh=on,
        arrays=mlp_state(on) if arrays is None else arrays,
        programs=(
            Program("init", seconds=Seconds(0.031, 0.212, 0.094)),
            Program("train_step", seconds=Seconds(0.052, 0.131, 0.118, (*steps, 0.0984))),
            Program("apply", seconds=Seconds(0.018, 0.061, 0.024, tuple(s / 4 for s in steps))),
        ),
    )


def uneven(on: Mesh) -> Array:
    """Ten rows on four devices as 3, 3, 3, 1: only a list of shards can say it."""
    borders = [0, 3, 6, 9, 10]
    shards = tuple(
        Shard(device, ((borders[device], borders[device + 1]), (0, 6)), 0, 0) for device in range(4)
    )
    return Array("output/uneven", "output", (10, 6), "float32", bytes=240, shards=shards)


def with_path(array: Array, path: str) -> Array:
    return dataclasses.replace(array, path=path)


def planned(on: Mesh | None, *arrays: Array) -> Snapshot:
    """A Snapshot of these arrays before a run."""
    return Snapshot(Source("plan", None, "2026-01-01T00:00:00+00:00"), None, on, arrays)


def state_and_changed() -> tuple[Snapshot, Snapshot]:
    """The default MLP, and the same with one kernel replicated, one array more and one less."""
    arrays = list(mlp_state())
    other = list(arrays)
    other[1] = array(arrays[1].path, (1024, 1024), (None, None), DEFAULT_MESH, ("embed", "hidden"))
    other[2] = array(HOSTILE_PATH, (8,), (("data",),), DEFAULT_MESH)
    return planned(DEFAULT_MESH, *arrays), planned(DEFAULT_MESH, *other)


def many(count: int, on: Mesh) -> tuple[Array, ...]:
    """Arrays that do not fold: their paths differ in letters, not numbers."""
    specs = [(None, None), (("data",), None), (None, ("model",)), (("model",), ("data",))]
    letters = "abcdefghij"
    return tuple(
        array(
            "params/" + "/".join(letters[int(digit)] for digit in f"{number:04d}"),
            (512 * (1 + number % 7), 1024),
            specs[number % 4],
            on,
            ("embed", "mlp"),
        )
        for number in range(count)
    )
