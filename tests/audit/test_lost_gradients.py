"""Gradients that lost the sharding of their parameter, against the shardings that JAX compiles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.recording.inspected import inspect

pytestmark = pytest.mark.close_to_jax

MESH = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2)
LAYERS, WIDTH, HIDDEN = 4, 64, 128
UP, DOWN = ("fsdp", "tensor"), ("tensor", "fsdp")


def sharded(shape: tuple[int, ...], *axes: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(MESH, P(*axes)))


PARAMETERS = {
    "up": sharded((LAYERS, WIDTH, HIDDEN), None, *UP),
    "down": sharded((LAYERS, HIDDEN, WIDTH), None, *DOWN),
}
X = sharded((32, WIDTH), "fsdp")


def loss(params: Any, x: Any, constrained: bool) -> Any:
    def kept(weight: Any, axes: tuple[str, str]) -> Any:
        if not constrained:
            return weight
        return jax.lax.with_sharding_constraint(weight, NamedSharding(MESH, P(*axes)))

    def layer(x: Any, w: Any) -> Any:
        return x + jnp.tanh(x @ kept(w["up"], UP)) @ kept(w["down"], DOWN), None

    return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)


@pytest.mark.parametrize("constrained", [False, True])
def test_gradients_of_scanned_layers_lose_an_axis_without_a_constraint(constrained: bool) -> None:
    def grads(params: Any, x: Any) -> Any:
        return jax.grad(loss)(params, x, constrained)

    compiled = jax.jit(grads).lower(PARAMETERS, X).compile()
    lost = {
        name
        for name, sharding in compiled.output_shardings.items()
        if "fsdp" not in jax.tree.leaves(tuple(sharding.spec))
    }
    assert lost == (set() if constrained else {"up", "down"})
    snapshot = inspect(jax.jit(grads), PARAMETERS, X)
    findings = [finding for finding in snapshot.findings if finding.code == "gradient-sharding-lost"]
    assert len(findings) == bool(lost)
    for finding in findings:
        whole = 2 * LAYERS * WIDTH * HIDDEN * 4
        assert finding.bytes == whole // 2 - whole // 8
        assert {path.split("/")[-1] for path in finding.arrays or ()} == lost
        assert finding.axes == ("fsdp",)


def test_a_program_that_returns_gathered_weights_has_no_gradients() -> None:
    def gather(params: Any) -> Any:
        return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w, NamedSharding(MESH, P())), params)

    snapshot = inspect(jax.jit(gather), PARAMETERS)
    assert not [finding for finding in snapshot.findings if finding.code == "gradient-sharding-lost"]
