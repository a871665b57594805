"""The MLP with logical axes, which name the meaning of a dimension.

    x (batch, embed) → y = relu(x·W1) (batch, hidden) → z = y·W2 (batch, embed) → next block

With `bias`, each product adds a vector, whose logical axis is that of the columns of its matrix: `hidden` or
`embed`. Without a rule for `embed`, the second one is replicated.

Rules map logical axes to mesh axes when the model is traced (`nn.logical_axis_rules`), so one module serves
every layout.
"""

import functools
from collections.abc import Collection

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


class DotReluDot(nn.Module):
    """Two matrices with a ReLU between them. Returns (z, None), the carry and output of scan."""

    depth: int
    bias: bool
    unconstrained: frozenset[str]
    dtype: jnp.dtype
    kernel_init: nn.initializers.Initializer = nn.initializers.xavier_normal()

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        zeros = nn.initializers.zeros
        y = nn.Dense(
            self.depth,
            use_bias=self.bias,
            dtype=self.dtype,
            param_dtype=self.dtype,
            kernel_init=partitioned(self.kernel_init, ("embed", "hidden")),
            # On explicit axes, JAX adds a bias to rows sharded over the same axis only if it is gathered.
            bias_init=partitioned(zeros, ("hidden",), used=(None,)),
            dot_general=functools.partial(
                jax.lax.dot_general, out_sharding=self.out_sharding("y", ("batch", "hidden"))
            ),
        )(x)
        y = nn.relu(y)
        y = self.constrained("y", y, ("batch", "hidden"))

        w2_init = partitioned(self.kernel_init, ("hidden", "embed"))
        w2 = self.param("W2", w2_init, (self.depth, x.shape[-1]), self.dtype)
        z = jnp.dot(y, w2, out_sharding=self.out_sharding("z", ("batch", "embed")))
        if self.bias:
            b2_init = partitioned(zeros, ("embed",), used=(None,))
            z += self.param("b2", b2_init, z.shape[-1:], self.dtype)
        z = self.constrained("z", z, ("batch", "embed"))
        return z, None

    def out_sharding(self, name: str, names: tuple[str, ...]) -> PartitionSpec | None:
        """Return the sharding of a product on explicit axes, unless the layout leaves it to JAX."""
        if name in self.unconstrained:
            return None
        return out_sharding(names)

    def constrained(self, name: str, value: jax.Array, names: tuple[str, ...]) -> jax.Array:
        """Return the value with its logical constraint, unless the layout leaves it to the compiler."""
        if name in self.unconstrained:
            watch("/".join(("activation", *self.path, name)), value)
            return value
        if has_explicit_axes():
            value = resharded(value, names)
        else:
            value = nn.with_logical_constraint(value, names)
        watch("/".join(("activation", *self.path, name)), value, names)
        return value


class MLP(nn.Module):
    """`layers` blocks in a row: a Python loop, or one block scanned over stacked parameters."""

    layers: int
    depth: int
    bias: bool
    scan: bool
    unconstrained: frozenset[str]
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        block = (self.depth, self.bias, self.unconstrained, self.dtype)
        if self.scan:
            blocks = nn.scan(
                DotReluDot,
                length=self.layers,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                check_constancy_invariants=False,  # would trace the block a second time
                metadata_params={nn.PARTITION_NAME: "layer"},
            )
            x, _ = blocks(*block)(x)
        else:
            for _ in range(self.layers):
                x, _ = DotReluDot(*block)(x)
        return x


def logical_mlp(
    *,
    batch: int = 8,
    layers: int = 4,
    depth: int = 1024,
    bias: bool = False,
    scan: bool = False,
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    loss: str = "sum",
    dtype: str = "float32",
    unconstrained: Collection[str] = (),
) -> Model:
    """Build the model with its training. Trace it under a mesh and rules."""
    return regression(
        MLP(layers, depth, bias, scan, frozenset(unconstrained), jnp.dtype(dtype)),
        optimizer_named(optimizer, learning_rate),
        loss=loss,
        shape=(batch, depth),
        dtype=jnp.dtype(dtype),
        batch_axes=("batch", "embed"),
        output_axes=("batch", "embed"),
        names="logical",
    )
