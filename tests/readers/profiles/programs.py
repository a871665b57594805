"""Ten programs on eight emulated devices, and their profiles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
STEPS = 3


def placed(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> jax.Array:
    return jax.device_put(jnp.ones(shape, dtype), NamedSharding(MESH, P(*spec)))


def mlp() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    def train_step(w1: jax.Array, w2: jax.Array, x: jax.Array) -> Any:
        def loss(weights: Any) -> jax.Array:
            return jnp.mean((jnp.tanh(x @ weights[0]) @ weights[1]) ** 2)

        value, gradients = jax.value_and_grad(loss)((w1, w2))
        return [w - 0.1 * g for w, g in zip((w1, w2), gradients, strict=True)], value

    w1, w2 = placed((128, 256), None, "model"), placed((256, 128), "model", None)
    return train_step, (w1, w2, placed((64, 128), "data", None))


def transformer() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    def block(x: jax.Array, qkv: jax.Array, out: jax.Array) -> jax.Array:
        q, k, v = jnp.moveaxis(jnp.einsum("bsd,dch->cbsh", x, qkv), 0, 0)
        scores = jax.nn.softmax(jnp.einsum("bqh,bkh->bqk", q, k))
        return x + jnp.einsum("bqk,bkh->bqh", scores, v) @ out

    x = placed((8, 16, 64), "data", None, None)
    return block, (x, placed((64, 3, 64), None, None, "model"), placed((64, 64), "model", None))


def scan() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    def layers(x: jax.Array, ws: jax.Array) -> jax.Array:
        def body(carry: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(lax.with_sharding_constraint(carry @ w, NamedSharding(MESH, P("data")))), None

        return lax.scan(body, x, ws)[0]

    return layers, (placed((32, 64), "data", "model"), placed((4, 64, 64), None, "model"))


def mapped() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    @functools.partial(jax.shard_map, mesh=MESH, in_specs=P("data", "model"), out_specs=P("data", None))
    def summed(x: jax.Array) -> jax.Array:
        return lax.psum(jnp.sin(x), "model")

    return summed, (placed((32, 64), "data", "model"),)


def mixture_of_experts() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    def moe(x: jax.Array, experts: jax.Array) -> jax.Array:
        return jnp.einsum("ecd,edf->ecf", x, experts).sum(axis=2)

    return moe, (placed((8, 16, 32), None, "data", None), placed((8, 32, 32), "model", None, None))


def all_to_all() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    @functools.partial(jax.shard_map, mesh=MESH, in_specs=P("model", None), out_specs=P(None, "model"))
    def transposed(x: jax.Array) -> jax.Array:
        return lax.all_to_all(x, "model", split_axis=1, concat_axis=0, tiled=True) * 2

    return transposed, (placed((32, 64), "model", None),)


def inference_loop() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    def decode(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, lambda i, c: jnp.tanh(c @ w), x)

    return decode, (placed((8, 64), "data", None), placed((64, 64), None, "model"))


GENERATED, LAYERS = 7, 2  # iterations of a loop that depends on data, and of one in it


def generation() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    """Return a program with a loop whose end depends on an argument. It is none of the ten."""

    @functools.partial(
        jax.shard_map, mesh=MESH, in_specs=(P("data", "model"), P()), out_specs=P("data", "model")
    )
    def generate(x: jax.Array, most: jax.Array) -> jax.Array:
        def layer(_: int, y: jax.Array) -> jax.Array:
            return jnp.sin(lax.psum(y, "model") * 0.1 + y)

        def token(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            number, y = state
            return number + 1, lax.fori_loop(0, LAYERS, layer, y @ y.T @ y)

        return lax.while_loop(lambda state: state[0] < most, token, (jnp.int32(0), x))[1]

    return generate, (placed((64, 64), "data", "model"), placed((), dtype=jnp.int32) * GENERATED)


def ring() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    @functools.partial(jax.shard_map, mesh=MESH, in_specs=P("model"), out_specs=P("model"))
    def shifted(x: jax.Array) -> jax.Array:
        return lax.ppermute(x, "model", [(i, (i + 1) % 4) for i in range(4)]) + x

    return shifted, (placed((64, 8), "model", None),)


def sort_and_branch() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    def branched(x: jax.Array) -> jax.Array:
        return lax.cond(jnp.sum(x) > 0, lambda y: jnp.sort(y, axis=1), jnp.cos, x)

    return branched, (placed((64, 128), "data", None),)


def fsdp() -> tuple[Callable[..., Any], tuple[jax.Array, ...]]:
    def gathered(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(x @ lax.with_sharding_constraint(w, NamedSharding(MESH, P())))

    return gathered, (placed((64, 128), ("data", "model"), None), placed((128, 128), ("data", "model"), None))


PROGRAMS = (
    *(mlp, transformer, scan, mapped, mixture_of_experts, all_to_all, inference_loop, ring, sort_and_branch),
    fsdp,
)


def profiled(program: Callable[..., Any], folder: Path, steps: int = STEPS, **options: Any) -> Any:
    """Profile some runs of a program, and return its executable."""
    function, arguments = program()
    executable = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(executable(*arguments))
    chosen = jax.profiler.ProfileOptions()
    chosen.python_tracer_level = 0
    for name, value in options.items():
        setattr(chosen, name, value)
    with jax.profiler.trace(folder, profiler_options=chosen):
        for _ in range(steps):
            jax.block_until_ready(executable(*arguments))
    return executable
