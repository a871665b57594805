"""Tests of `shard_map` in partitioned programs: the collectives and FLOPs of a compile, and local values."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir

from inspector.partition import shardy
from inspector.partition.partition_layout import Setting, propagated_program
from inspector.partition.template import Lowered
from inspector.partition.xla_form import remove_dead_code, xla_form
from inspector.recording.capture import capture_compiled
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Program
from inspector.text.errors import InvalidInput

pytestmark = pytest.mark.close_to_jax

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
# Specs of the batch, and the axes that are manual.
KINDS = {"full": (P("data"), {"data", "model"}), "partial": (P(), {"model"})}


def step(batch: P, manual: set[str]) -> Any:
    def block(x: Any, up: Any, down: Any) -> Any:
        return jax.lax.psum(jax.nn.relu(x @ up) @ down, "model")

    specs = {"in_specs": (batch, P(None, "model"), P("model")), "out_specs": batch}
    mapped = jax.shard_map(block, axis_names=manual, **specs)

    def train(params: tuple[Any, ...], x: Any) -> Any:
        def loss(params: tuple[Any, ...]) -> Any:
            return jax.lax.scan(lambda x, _: (mapped(x, *params), None), x, length=3)[0].sum()

        return jax.value_and_grad(loss)(params)

    return train


def sent(program: Program) -> Counter[tuple[str, ...]]:
    """Return the bytes that one run sends over each mesh axis."""
    counter: Counter[tuple[str, ...]] = Counter()
    for collective in program.collectives or ():
        assert collective.mesh_axes and collective.executions and collective.wire_bytes_per_device is not None
        counter[collective.mesh_axes] += collective.executions * collective.wire_bytes_per_device
    return counter


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_map_sends_what_the_compiled_one_sends(kind: str) -> None:
    batch, manual = KINDS[kind]

    def placed(shape: tuple[int, ...], *spec: Any) -> Any:
        sharding = NamedSharding(MESH, P(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    params = (placed((16, 32), None, "model"), placed((32, 16), "model"))
    chosen = (None, tuple(param.sharding for param in params))
    with jax.set_mesh(MESH):
        jitted = jax.jit(step(batch, manual), out_shardings=chosen)
        lowered = jitted.lower(params, placed((8, 16), "data"))
        module = xla_form(lowered.compiler_ir("stablehlo"))
        snapshot = capture_compiled(lowered.compile(), mesh=MESH)
    with module.context, ir.Location.unknown():
        shardy.inline_calls(module.operation)
        remove_dead_code(module.operation)
    with pytest.raises(InvalidInput, match="loop"):  # Shardy itself would end the process
        shardy.propagate(module, origins=True)
    assert snapshot.mesh is not None
    paths = tuple(f"arg{n}" for n in range(3)), tuple(f"out{n}" for n in range(3))
    described = propagated_program(
        Lowered("step", module, *paths, {}),
        Setting(snapshot.mesh, watched="step"),
        logical=False,
        origins=False,
    )
    program, inside = described.program, described.arrays
    (compiled,) = snapshot.programs
    # The loop counters of XLA differ.
    assert program.flops_per_device == pytest.approx(compiled.flops_per_device, rel=0.01)
    assert sent(program) == sent(compiled)
    # No global array has such a value, so it has the shape of the code inside, and no PartitionSpec.
    products = [array for array in inside if array.path.startswith("activation/") and "dot" in array.path]
    assert products
    for product in products:
        assert product.spec is None and product.replicas is None
        assert set(product.shard_map.manual_axes) == manual
        rows = 4 if kind == "full" else 8
        assert product.shape is not None and product.shape[0] == rows
        assert product.shard_shape == (4, *product.shape[1:])


@pytest.mark.first_jax_is_enough
def test_a_shard_map_is_named_by_its_line_as_a_source() -> None:
    """Shardy calls the result of a `shard_map` its own source."""
    spec = P("data", "model")
    mapped = jax.shard_map(jnp.tanh, mesh=MESH, in_specs=spec, out_specs=spec)

    def step(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: (mapped(x @ w) @ w.T).sum())(w)

    def placed(shape: tuple[int, ...], *axes: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(MESH, P(*axes)))

    snapshot = inspect(step, placed((64, 32)), placed((16, 64)))
    sources = [
        origin.from_
        for collective in snapshot.programs[0].collectives or ()
        for origin in collective.origins or ()
    ]
    assert sources and not any(source.endswith(" self") or "mc_0" in source for source in sources)
    assert any("test_manual.py:" in source for source in sources)
