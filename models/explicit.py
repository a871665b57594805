"""Explicit mesh axes, on which JAX checks shardings when it traces a model.

On auto axes, a model constrains shardings and the compiler follows. On explicit axes, a model reshards, and
passes the sharding of a result that its operands do not determine. These functions do what the axes of the
current mesh need, so that one model serves both types.
"""

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn
from flax import struct
from flax.core import meta
from jax.sharding import PartitionSpec

# The names of the dimensions of an array: logical axes, or entries of a PartitionSpec.
DimensionNames = tuple[Any, ...]


def has_explicit_axes() -> bool:
    """Return whether the current mesh has explicit axes."""
    return bool(jax.sharding.get_abstract_mesh().explicit_axes)


def out_sharding(names: DimensionNames, logical: bool = True) -> PartitionSpec | None:
    """Return the argument `out_sharding` of an operation; None without explicit axes."""
    if has_explicit_axes():
        return only(mesh_spec(names, logical), jax.sharding.get_abstract_mesh().explicit_axes)
    else:
        return None


def partitioned(
    init: Callable[..., jax.Array],
    names: DimensionNames,
    logical: bool = True,
    used: DimensionNames | None = None,
) -> Callable[..., Any]:
    """Return an initializer of a parameter whose dimensions have these names.

    Args:
      logical: whether the names are logical axes; otherwise they are mesh axes.
      used: on explicit axes, the names by which the parameter is sharded when the layer uses it. None for
        `names`.
    """
    if has_explicit_axes():
        box = LogicalBox if logical else MeshBox
        return lambda *arguments: box(resharded(init(*arguments), names, logical), names, used=used)
    else:
        return (nn.with_logical_partitioning if logical else nn.with_partitioning)(init, names)


class LogicalBox(nn.LogicallyPartitioned):
    """A parameter with logical axes on a mesh with explicit axes."""

    used: DimensionNames | None = struct.field(default=None, pytree_node=False)

    def unbox(self, apply_constraint: bool = True) -> Any:
        """Return the value, while it is traced with the sharding in which it is used."""
        if not (apply_constraint and isinstance(self.value, jax.core.Tracer)):
            return self.value
        return resharded(self.value, self.used or self.names)


class MeshBox(meta.Partitioned):
    """A parameter with mesh axes on a mesh with explicit axes."""

    used: DimensionNames | None = struct.field(default=None, pytree_node=False)

    def unbox(self, apply_constraint: bool = True) -> Any:
        """Return the value, while it is traced with the sharding in which it is used."""
        if not (apply_constraint and isinstance(self.value, jax.core.Tracer)):
            return self.value
        return resharded(self.value, self.used or self.names, logical=False)


def resharded(value: jax.Array, names: DimensionNames, logical: bool = True) -> jax.Array:
    """Reshard a value over explicit axes, and constrain it over auto axes."""
    mesh, spec = jax.sharding.get_abstract_mesh(), mesh_spec(names, logical)
    value = jax.sharding.reshard(value, only(spec, mesh.explicit_axes))
    if mesh.auto_axes:
        value = jax.lax.with_sharding_constraint(value, only(spec, mesh.auto_axes))
    return value


def mesh_spec(names: DimensionNames, logical: bool) -> PartitionSpec:
    """Return the PartitionSpec of these names. The rules of Flax map logical axes."""
    if not logical:
        return PartitionSpec(*names)
    return nn.logical_to_mesh_axes(names) or PartitionSpec()


def only(spec: PartitionSpec, axes: tuple[str, ...]) -> PartitionSpec:
    """Return the spec with only these mesh axes."""
    together = [(entry,) if isinstance(entry, str) else entry or () for entry in spec]
    return PartitionSpec(*[tuple(axis for axis in entry if axis in axes) for entry in together])
