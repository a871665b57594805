"""Dump programs with every kind of placement, capture them, and write JAX's own placements beside them.

Run in a new process, because XLA reads its flags at its start: `python dumped.py FOLDER`.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    flags = f"--xla_dump_to={folder}/dump --xla_dump_hlo_as_text"
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path.insert(0, str(Path(__file__).parents[2]))
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    from inspector.recording.capture import capture, capture_compiled

    devices = np.array(jax.devices())[[0, 1, 3, 2, 4, 5, 7, 6]]
    main_mesh = Mesh(devices.reshape(2, 4), ("data", "model"))
    other_mesh = Mesh(devices.reshape(4, 2), ("x", "y"))
    slices = Mesh(devices.reshape(2, 2, 2), ("dcn", "data", "model"))
    explicit = Mesh(devices.reshape(2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    mixed_types = (AxisType.Explicit, AxisType.Auto)
    mixed_mesh = Mesh(devices.reshape(2, 4), ("data", "model"), axis_types=mixed_types)

    def placed(mesh: Mesh, *spec: Any, shape: tuple[int, ...] = (16, 8), **more: Any) -> Any:
        unreduced = {"unreduced": more.pop("unreduced")} if "unreduced" in more else {}
        dtype = more.pop("dtype", jnp.float32)
        sharding = NamedSharding(mesh, PartitionSpec(*spec, **unreduced), **more)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    expected: dict[str, Any] = {}
    programs: dict[str, Any] = {}
    state: dict[str, dict[str, Any]] = {}

    def note(value: Any) -> dict[str, Any]:
        sharding, shape = value.sharding, value.shape
        # JAX has no index of an unreduced array, whose shards have the shape of the reduced one.
        reduced = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec.partitions))
        index = reduced.devices_indices_map(shape)
        return {
            "shape": shape,
            "dtype": str(value.dtype),
            "memory_kind": sharding.memory_kind or "device",
            "unreduced": sorted(getattr(sharding.spec, "unreduced", ()) or ()),
            "shards": {
                str(device.id): [
                    part.indices(size)[:2] for part, size in zip(index[device], shape, strict=True)
                ]
                for device in index
            },
        }

    def live(value: Any) -> Any:
        """Return an array with the sharding of `value`."""
        if not getattr(value.sharding.spec, "unreduced", None):
            return jax.device_put(np.zeros(value.shape, value.dtype), value.sharding)
        left = placed(explicit, "data", "model", shape=(value.shape[0], 8))
        right = placed(explicit, "model", shape=(8, value.shape[1]))
        contracted = (((1,), (0,)), ((), ()))
        with jax.set_mesh(explicit):
            dot = functools.partial(
                jax.lax.dot_general,
                dimension_numbers=contracted,
                out_sharding=value.sharding.spec,
            )
            return jax.jit(dot)(*map(live, (left, right)))

    def dump(function: Any, arguments: dict[str, Any], results: Any = None, mesh: Any = None) -> None:
        """Compile a function of one dict; with `results`, its outputs are placed like these."""
        shardings = {} if results is None else {"out_shardings": [result.sharding for result in results]}
        name = f"jit_{function.__name__}"
        with jax.set_mesh(mesh or main_mesh):
            programs[name] = jax.jit(function, **shardings).lower(arguments).compile()
        state[name] = {key: live(value) for key, value in arguments.items()}
        for key, value in arguments.items():
            expected[f"{name}/input/values/{key}"] = note(value)
        for number, value in enumerate(results or ()):
            expected[f"{name}/output/{number}"] = note(value)

    def total(values: dict[str, Any]) -> Any:
        return sum(value.astype(jnp.float32).sum() for value in values.values())

    dump(
        total,
        {
            "both": placed(main_mesh, "data", "model"),
            "minor_first": placed(main_mesh, ("model", "data")),
            "major_first": placed(main_mesh, None, ("data", "model")),
            "one_axis": placed(main_mesh, None, "model"),
            "replicated": placed(main_mesh),
            "scalar": placed(main_mesh, shape=(), dtype=jnp.int32),
            "other_mesh": placed(other_mesh, "y", "x"),
            "part_of_other_mesh": placed(other_mesh, "x"),
            "three_axes": placed(slices, ("dcn", "model"), "data", dtype=jnp.bfloat16),
        },
    )  # fmt: skip

    def doubled(values: dict[str, Any]) -> Any:
        return [values["in"] * 2, values["in"] * 3, values["in"] * 4]

    dump(
        doubled,
        {"in": placed(main_mesh, "data")},
        [
            placed(main_mesh, "data", "model"),
            placed(main_mesh, "model", memory_kind="pinned_host"),
            placed(other_mesh, "x", "y"),
        ],
    )

    def from_host(values: dict[str, Any]) -> Any:
        return [jax.device_put(values["host"], placed(main_mesh, "data").sharding) * 2]

    host = placed(main_mesh, "data", memory_kind="pinned_host")
    dump(from_host, {"host": host}, [placed(main_mesh, "data")])

    def reduced(values: dict[str, Any]) -> Any:
        return [jax.sharding.reshard(values["sums"], PartitionSpec("data", None))]

    sums = placed(explicit, "data", unreduced={"model"})
    dump(reduced, {"sums": sums}, [placed(explicit, "data")], explicit)

    def matmul(values: dict[str, Any]) -> Any:
        return [values["x"] @ values["w"]]

    def mixed(values: dict[str, Any]) -> Any:
        return [values["x"] @ values["w"]]

    for function, mesh in ((matmul, explicit), (mixed, mixed_mesh)):
        values = {"x": placed(mesh, "data"), "w": placed(mesh, None, "model", shape=(8, 8))}
        dump(function, values, [placed(mesh, "data", "model")], mesh)

    def mapped(values: dict[str, Any]) -> Any:
        spec = PartitionSpec("data", "model")
        return [jax.shard_map(lambda x: x * 2, in_specs=spec, out_specs=spec)(values["x"])]

    def partly_mapped(values: dict[str, Any]) -> Any:
        spec = PartitionSpec(None, "model")
        over_model = {"in_specs": spec, "out_specs": spec, "axis_names": {"model"}}
        return [jax.shard_map(lambda x: x * 2, **over_model)(values["x"])]

    for function in (mapped, partly_mapped):
        dump(
            function,
            {"x": placed(main_mesh, "data", "model")},
            [placed(main_mesh, "data", "model")],
        )
    (folder / "expected.json").write_text(json.dumps(expected))
    capture(state, folder / "state.json", programs=programs)
    capture_compiled(programs, folder / "programs.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
