"""Programs of JAX whose collectives follow from their code, compiled during the tests.

The collectives are written with `jax.shard_map`, so that no version of XLA can choose others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS = 12


def _compiled(function: Callable, mesh: Mesh, shapes: list, specs: list, result: Any) -> str:
    mapped = jax.shard_map(function, mesh=mesh, in_specs=tuple(specs), out_specs=result, check_vma=False)
    arguments = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for shape, spec in zip(shapes, specs, strict=True)
    ]
    return jax.jit(mapped).lower(*arguments).compile().as_text()


def _grid() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def _every_collective() -> str:
    def function(x: jax.Array) -> jax.Array:
        x = lax.all_gather(x, "model", axis=1, tiled=True)
        x = lax.psum_scatter(jnp.tanh(x), "model", scatter_dimension=0, tiled=True)
        x = lax.all_to_all(jnp.tanh(x), "model", split_axis=0, concat_axis=1, tiled=True)
        x = lax.ppermute(jnp.tanh(x), "data", [(0, 1), (1, 0)])
        return lax.psum(jnp.tanh(x), ("data", "model"))

    return _compiled(function, _grid(), [(64, 32)], [P("data", "model")], P())


def _layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
    whole = lax.all_gather(w, "model", axis=0, tiled=True)  # source of a gather
    return jnp.tanh(x @ whole), None


def _scan() -> str:
    return _compiled(
        lambda stack, x: lax.scan(_layer, x, stack)[0], _grid(),
        [(LAYERS, 32, 32), (16, 32)], [P(None, "model", None), P("data", None)], P("data", None),
    )  # fmt: skip


def _scan_grad() -> str:
    """A step of SGD: each layer gathers its weight forward, and its gradient is summed backward."""

    def step(stack: jax.Array, x: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda stack: (lax.scan(_layer, x, stack)[0] ** 2).sum())(stack)
        return stack - 0.1 * lax.psum(gradient, "data")

    return _compiled(
        step, _grid(), [(LAYERS, 32, 32), (16, 32)],
        [P(None, "model", None), P("data", None)], P(None, "model", None),
    )  # fmt: skip


def _adam_step() -> str:
    """Two stacks of sharded weights, gathered layer by layer, each with two moments of Adam."""

    def layer(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        up, down = (lax.all_gather(w, "model", axis=0, tiled=True) for w in weights)
        return jnp.tanh(jnp.tanh(x @ up) @ down), None

    def step(up, down, up_mean, down_mean, up_square, down_square, x):
        def loss(weights):
            return (lax.scan(layer, x, weights)[0] ** 2).sum()

        results = []
        gradients = jax.grad(loss)((up, down))
        for w, mean, square, gradient in zip(
            (up, down), (up_mean, down_mean), (up_square, down_square), gradients, strict=True
        ):
            gradient = lax.psum(gradient, "data")
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.99 * square + 0.01 * gradient**2
            results.append((w - 0.1 * mean / jnp.sqrt(square + 1e-8), mean, square))
        return tuple(value for part in zip(*results, strict=True) for value in part)

    stack = P(None, "model", None)
    return _compiled(
        step, _grid(), [*[(LAYERS, 32, 64), (LAYERS, 64, 32)] * 3, (16, 32)],
        [stack] * 6 + [P("data", None)], (stack,) * 6,
    )  # fmt: skip


def _cond() -> str:
    def function(x: jax.Array, flag: jax.Array) -> jax.Array:
        return lax.cond(
            flag[0] > 0,
            lambda x: lax.psum(x, "data"),
            lambda x: lax.ppermute(x, "model", [(n, (n + 1) % 4) for n in range(4)]),
            x,
        )

    specs = [P("data", "model"), P()]
    return _compiled(function, _grid(), [(64, 32), (1,)], specs, P(None, "model"))


def _permuted_mesh() -> str:
    mesh = Mesh(np.array(jax.devices()[:8])[::-1].reshape(4, 2), ("a", "b"))
    return _compiled(lambda x: lax.psum(jnp.tanh(x), "b"), mesh, [(64, 32)], [P("a", "b")], P("a", None))


_PROGRAMS = {
    "own every collective": _every_collective,
    "own scan": _scan,
    "own scan and gradient": _scan_grad,
    "own step of Adam": _adam_step,
    "own cond": _cond,
    "own permuted mesh": _permuted_mesh,
}
NAMES = tuple(_PROGRAMS)


@cache
def text(name: str) -> str:
    """Return the optimized HLO of one of `NAMES`."""
    return _PROGRAMS[name]()
