"""Gradient accumulation: the mean loss and gradients of microbatches, computed one after the other."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import numpy as jnp

from inspector.model import Batch
from inspector.model.built_in.explicit import out_sharding


def accumulated(
    loss_of: Callable[[Any, Batch], jax.Array],
    accumulate: int,
    batch_axes: Mapping[str, tuple[str, ...]],
) -> Callable[[Any, Batch], tuple[jax.Array, Any]]:
    """Return the function (parameters, batch) -> (loss, gradients).

    Args:
      loss_of: (parameters, batch) -> scalar loss in float32, a mean over the rows of the batch.
      accumulate: the number of microbatches, which divides the rows. Gradients are added in the type of the
        parameters.
      batch_axes: the logical axes of each array of a batch, its rows first.
    """
    of_one = jax.value_and_grad(loss_of)
    if accumulate == 1:
        return of_one

    def of_all(params: Any, batch: Batch) -> tuple[jax.Array, Any]:
        def add(sums: Any, part: Batch) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, of_one(params, part)), None

        parts = {name: microbatches(array, accumulate, batch_axes[name]) for name, array in batch.items()}
        start = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, params))
        sums, _ = jax.lax.scan(add, start, parts)
        return jax.tree.map(lambda total: total / accumulate, sums)

    return of_all


def microbatches(array: jax.Array, count: int, names: tuple[str, ...]) -> jax.Array:
    """Return `count` microbatches, stacked: (rows, …) → (count, rows / count, …).

    Each takes every `count`-th row, so that a device keeps its rows.
    """
    shape = (array.shape[0] // count, count, *array.shape[1:])
    split = jnp.reshape(array, shape, out_sharding=out_sharding((names[0], None, *names[1:])))
    return split.swapaxes(0, 1)
