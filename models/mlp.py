"""An MLP whose parameters and activations name mesh axes.

x (batch, embed) → y = relu(x·W1) (batch, hidden) → z = y·W2 (batch, embed) → next block
"""

import functools
from collections.abc import Collection, Mapping
from typing import Any

import jax
from flax import linen as nn
from jax import numpy as jnp
from jax.sharding import PartitionSpec

from inspector.model import Model
from inspector.model.built_in.explicit import (
    has_explicit_axes,
    out_sharding,
    partitioned,
    resharded,
)
from inspector.model.built_in.training import optimizer_named, regression
from inspector.model.built_in.watching import watch

# Data parallel over `data`. W1 is sharded by columns and W2 by rows over `model`, so that a block needs
# one all-reduce.
PARTITIONS: Mapping[str, tuple[Any, ...]] = {
    "W1": (None, "model"),
    "W2": ("model", None),
    "x": ("data", None),
    "y": ("data", "model"),
    "z": ("data", None),
    "layer": (None,),  # the dimension along which scan stacks the blocks
}


class DotReluDot(nn.Module):
    """Two matrices with a ReLU between them. Returns (z, None), the carry and output of scan."""

    depth: int
    partitions: Mapping[str, tuple[Any, ...]]
    unconstrained: frozenset[str]
    dtype: jnp.dtype
    kernel_init: nn.initializers.Initializer = nn.initializers.xavier_normal()

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        y = nn.Dense(
            self.depth,
            use_bias=False,
            dtype=self.dtype,
            param_dtype=self.dtype,
            kernel_init=partitioned(self.kernel_init, self.partitions["W1"], logical=False),
            dot_general=functools.partial(jax.lax.dot_general, out_sharding=self.out_sharding("y")),
        )(x)
        y = nn.relu(y)
        y = self.constrained("y", y)

        w2_init = partitioned(self.kernel_init, self.partitions["W2"], logical=False)
        w2 = self.param("W2", w2_init, (self.depth, x.shape[-1]), self.dtype)
        z = jnp.dot(y, w2, out_sharding=self.out_sharding("z"))
        z = self.constrained("z", z)
        return z, None

    def out_sharding(self, name: str) -> PartitionSpec | None:
        """Return the sharding of a product on explicit axes, unless the layout leaves it to JAX."""
        if name in self.unconstrained:
            return None
        return out_sharding(self.partitions[name], logical=False)

    def constrained(self, name: str, value: jax.Array) -> jax.Array:
        """Return the value with its sharding constraint, unless the layout leaves it to the compiler."""
        if name in self.unconstrained:
            watch("/".join(("activation", *self.path, name)), value)
            return value
        names = self.partitions[name]
        if has_explicit_axes():
            value = resharded(value, names, logical=False)
        else:
            value = jax.lax.with_sharding_constraint(value, PartitionSpec(*names))
        watch("/".join(("activation", *self.path, name)), value, names)
        return value


class MLP(nn.Module):
    """`layers` blocks in a row: a Python loop, or one block scanned over stacked parameters."""

    layers: int
    depth: int
    scan: bool
    partitions: Mapping[str, tuple[Any, ...]]
    unconstrained: frozenset[str]
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        block = (self.depth, self.partitions, self.unconstrained, self.dtype)
        if self.scan:
            blocks = nn.scan(
                DotReluDot,
                length=self.layers,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                check_constancy_invariants=False,  # would trace the block a second time
                metadata_params={nn.PARTITION_NAME: self.partitions["layer"][0]},
            )
            x, _ = blocks(*block)(x)
        else:
            for _ in range(self.layers):
                x, _ = DotReluDot(*block)(x)
        return x


def mlp(
    *,
    batch: int = 8,
    layers: int = 4,
    depth: int = 1024,
    scan: bool = False,
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    loss: str = "sum",
    dtype: str = "float32",
    partitions: Mapping[str, tuple[Any, ...]] = PARTITIONS,
    unconstrained: Collection[str] = (),
) -> Model:
    """Build the model with its training. Trace it under a mesh (`jax.set_mesh`)."""
    partitions = {**PARTITIONS, **partitions}
    module = MLP(layers, depth, scan, partitions, frozenset(unconstrained), jnp.dtype(dtype))
    return regression(
        module,
        optimizer_named(optimizer, learning_rate),
        loss=loss,
        shape=(batch, depth),
        dtype=jnp.dtype(dtype),
        batch_axes=partitions["x"],
        output_axes=partitions["z"],
        names="mesh",
    )
