"""Programs with kernels for another platform, which the CPU cannot compile."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import pytest
from jax import numpy as jnp
from jax.experimental import pallas
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import inspector
from inspector import layout as layouts
from inspector.machines import targets
from inspector.model.built_in import catalogue
from inspector.partition.partition_layout import partitioned_programs
from inspector.tracing.model.describe import entry_of
from tests.model.importable import importable

TARGET = "tpu:v5e:2x4"
needs_libtpu = pytest.mark.skipif(
    targets.missing_compiler(targets.parse(TARGET)) is not None, reason="needs libtpu"
)

MODEL = """
    import jax
    from jax import numpy as jnp
    from jax.experimental import pallas as pl
    from jax.sharding import PartitionSpec as P
    from inspector.model import Model, by_regex

    def double(x):
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    def build():
        def apply(state, batch):
            h = batch["x"] @ state["w"]
            h = jax.shard_map(double, in_specs=P("d", "m"), out_specs=P("d", "m"), check_vma=False)(h)
            return h @ state["w"].T
        return Model(
            init=lambda key, batch: {"w": jax.random.normal(key, (256, 256))}, apply=apply,
            batch={"x": jax.ShapeDtypeStruct((64, 256), jnp.float32)}, batch_axes={"x": ("d", None)},
            state_specs=by_regex([("w", P(None, "m"))]), mesh={"d": 2, "m": 4},
        )
"""


def on(mesh: Mesh, shape: tuple[int, ...], *spec: Any, dtype: Any = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Auto,))


def twice(x: jax.Array) -> jax.Array:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.nightly
@needs_libtpu
def test_inspect_compiles_a_kernel_for_the_target_only(mesh: Mesh) -> None:
    mapped = jax.shard_map(twice, mesh=mesh, in_specs=P("rows"), out_specs=P("rows"), check_vma=False)

    @functools.partial(jax.jit, donate_argnames="state", static_argnames="power")
    def step(state: Any, unused: Any, key: Any, power: int) -> Any:
        noise = jax.random.normal(key, state["x"].shape)
        return {"x": mapped(state["x"] ** power + noise)}, jax.random.split(key)[0]

    snapshot = inspector.inspect(
        step,
        {"x": on(mesh, (64, 128), "rows")},
        on(mesh, (32,)),
        on(mesh, (), dtype=jax.random.key(0).dtype),
        power=2,
        target=TARGET,
    )
    (program,) = snapshot.programs
    assert snapshot.source.kind == "tpu"
    inputs = {sharding.path: sharding for sharding in program.shardings if sharding.role == "input"}
    assert {path: program_array.used for path, program_array in inputs.items()} == {
        "step/input/state/x": True,
        "step/input/unused": False,
        "step/input/key": True,
    }
    assert inputs["step/input/state/x"].donated
    assert snapshot.array("step/output/0/x").spec == (("rows",), None)
    assert program.memory.aliased == 8 * 128 * 4
    assert program.memory.arguments >= program.memory.aliased


@pytest.mark.nightly
@needs_libtpu
def test_inspect_compiles_a_collective_that_the_cpu_lacks(mesh: Mesh) -> None:
    def dispatch(x: jax.Array, sizes: jax.Array) -> jax.Array:
        send = sizes[0]
        starts = jnp.cumsum(send) - send
        every = jax.lax.all_gather(send, "rows")
        me = jax.lax.axis_index("rows")
        received, places = every[:, me], (jnp.cumsum(every, 0) - every)[me]
        out = jnp.zeros((32, 128), x.dtype)
        return jax.lax.ragged_all_to_all(x, out, starts, send, places, received, axis_name="rows")

    specs = (P("rows"), P("rows"))
    mapped = jax.shard_map(dispatch, mesh=mesh, in_specs=specs, out_specs=P("rows"), check_vma=False)
    snapshot = inspector.inspect(
        mapped, on(mesh, (128, 128), "rows"), on(mesh, (8, 8), "rows", dtype="int32"), target=TARGET
    )
    (program,) = snapshot.programs
    assert {collective.op for collective in program.collectives} == {"all-gather", "ragged-all-to-all"}


@pytest.mark.nightly
def test_a_model_with_a_kernel_is_planned(tmp_path: Path) -> None:
    with importable(tmp_path, "with_kernel", MODEL):
        catalogue.register(entry_of("with_kernel:build"))
        layout = layouts.parse({"model": "with_kernel:build"}).unwrap()
        programs = {program.name: program for program in partitioned_programs(layout).programs}
    # Over m: 32 rows of 256 float32 are summed on each of 4 devices.
    (reduced,) = [collective for collective in programs["apply"].collectives if collective.op == "all-reduce"]
    assert (reduced.mesh_axes, reduced.payload_bytes) == (("m",), 32 * 256 * 4)
