"""Locks of steps, written with one version of JAX: another one gives the same, or the failure names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from inspector import testing
from inspector.audit import lock_file

pytestmark = pytest.mark.close_to_jax

LOCKS = Path(__file__).parent / "locks"
MESH = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(AxisType.Explicit,) * 2)
Arrays = dict[str, jax.Array]


def array(shape: tuple[int, ...], *axes: Any, mesh: Any = MESH) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, PartitionSpec(*axes)))


def layer(x: jax.Array, layer: Arrays) -> tuple[jax.Array, None]:
    """Return the result of one layer with attention of one head, and a feed-forward network."""
    query, key, value = (x @ layer[name] for name in ("query", "key", "value"))
    scores = jax.nn.softmax(jnp.einsum("bsd,btd->bst", query, key))
    x = x + jnp.einsum("bst,btd->bsd", scores, value)
    return x + jax.nn.relu(x @ layer["wi"]) @ layer["wo"], None


def loss(params: Arrays, tokens: jax.Array) -> jax.Array:
    """Return the loss of a scanned transformer."""
    x = params["embedding"][tokens]
    x, _ = jax.lax.scan(jax.checkpoint(layer), x, {k: v for k, v in params.items() if k != "embedding"})
    logits = x @ params["embedding"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1).mean()


def train_step(params: Arrays, tokens: jax.Array) -> tuple[Arrays, jax.Array]:
    value, gradients = jax.value_and_grad(loss)(params, tokens)
    return jax.tree.map(lambda param, gradient: param - 0.1 * gradient, params, gradients), value


def transformer() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the train step of two layers, and its arguments."""
    rows, columns = "fsdp", "tensor"
    params = {name: array((2, 64, 64), None, rows, columns) for name in ("query", "key", "value")}
    params |= {"wi": array((2, 64, 256), None, rows, columns), "wo": array((2, 256, 64), None, columns, rows)}
    params["embedding"] = array((512, 64), columns, rows)
    tokens = jax.ShapeDtypeStruct((16, 32), "int32", sharding=NamedSharding(MESH, PartitionSpec("fsdp")))
    return jax.jit(train_step, donate_argnums=0), (params, tokens)


def ring(x: jax.Array) -> jax.Array:
    """Return the sum over the shards of a ring, with a permute and a reduction in a shard_map."""

    def step(x: jax.Array) -> jax.Array:
        shifted = jax.lax.ppermute(x, "fsdp", [(i, (i + 1) % 4) for i in range(4)])
        return jax.lax.psum(shifted * x, "tensor")

    spec = PartitionSpec("fsdp", "tensor")
    return jax.shard_map(step, mesh=MESH, in_specs=spec, out_specs=PartitionSpec("fsdp"))(x)


def explicit(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.sharding.reshard(x @ kernel, NamedSharding(EXPLICIT, PartitionSpec("fsdp", "tensor")))


def mlp(params: Arrays, x: jax.Array, y: jax.Array) -> Arrays:
    """Return the parameters after one step."""

    def loss(params: Arrays) -> jax.Array:
        return jnp.mean((jax.nn.relu(x @ params["wi"]) @ params["wo"] - y) ** 2)

    return jax.tree.map(lambda param, gradient: param - 0.1 * gradient, params, jax.grad(loss)(params))


KERNELS = {"wi": array((64, 256), "fsdp", "tensor"), "wo": array((256, 64), "tensor", "fsdp")}
STEPS = {
    "mlp": (jax.jit(mlp), (KERNELS, array((32, 64), "fsdp"), array((32, 64), "fsdp"))),
    "ring": (jax.jit(ring), (array((16, 64), "fsdp", "tensor"),)),
    "explicit": (
        jax.jit(explicit),
        (array((16, 64), "fsdp", mesh=EXPLICIT), array((64, 128), None, "tensor", mesh=EXPLICIT)),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_lock_is_the_same_for_each_version_of_jax(name: str) -> None:
    function, arguments = STEPS[name]
    testing.sharding_lock(function, *arguments, lock=LOCKS / f"{name}.sharding.json")


def test_a_program_that_differs_names_the_version_of_jax() -> None:
    """XLA of JAX 0.10 reshards a gradient with an all-to-all, that of 0.12 with an all-gather."""
    step, arguments = transformer()
    lock = LOCKS / "transformer.sharding.json"
    before = lock_file.read(lock).versions["jax"]
    if before == jax.__version__:
        testing.sharding_lock(step, *arguments, lock=lock)
        return
    with pytest.raises(AssertionError) as failure:
        testing.sharding_lock(step, *arguments, lock=lock)
    sentence, *changes = str(failure.value).splitlines()
    assert sentence.endswith(f"; the lock is of jax {before}, this is jax {jax.__version__}")
    assert not any(" array " in line for line in changes)
