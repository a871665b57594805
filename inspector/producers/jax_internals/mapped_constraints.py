"""Sharding constraints inside of `jax.vmap`, on a mesh whose axes have size 1.

JAX adds the mapped dimension to the PartitionSpec of such a constraint. It leaves out this step if the
constraint replicates, as it does on a mesh of one device, and then overwrites a dimension of the spec. In a
template the spec has the names of logical axes, so it must be whole.

Public replacement: none. Tried on JAX 0.10.2 and 0.12.0.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from jax._src import pjit
from jax._src.interpreters import batching
from jax.sharding import NamedSharding, PartitionSpec


@contextlib.contextmanager
def with_whole_specs() -> Iterator[None]:
    """Add the mapped dimension to the spec of each constraint that is traced in this context."""
    rules = batching.fancy_primitive_batchers
    of_jax = rules[pjit.sharding_constraint_p]

    def batched(axis_data: Any, values: Any, dimensions: Any, **parameters: Any) -> Any:
        (value,), (mapped,) = values, dimensions
        sharding = parameters["sharding"]
        is_plain = isinstance(sharding, NamedSharding) and parameters["layout"] is None
        if mapped is None or not is_plain or axis_data.spmd_name is not None:
            return of_jax(axis_data, values, dimensions, **parameters)
        spec = [*sharding.spec, *(None for _ in range(value.ndim - 1 - len(sharding.spec)))]
        spec.insert(mapped, PartitionSpec.UNCONSTRAINED)
        free = {number + (mapped <= number) for number in parameters["unconstrained_dims"]}
        parameters |= {
            "sharding": NamedSharding(sharding.mesh, PartitionSpec(*spec)),
            "unconstrained_dims": frozenset({mapped, *free}),
        }
        return pjit.sharding_constraint_p.bind(value, **parameters), mapped

    rules[pjit.sharding_constraint_p] = batched
    try:
        yield
    finally:
        rules[pjit.sharding_constraint_p] = of_jax
