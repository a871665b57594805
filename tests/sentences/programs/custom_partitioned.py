"""Partition an operation by a rule of the code, with a collective inside."""

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(jax.devices(), ("x",))


@custom_partitioning
def normalized(a):
    return a / jnp.sum(a)


def partition(mesh, arguments, result):
    place = arguments[0].sharding

    def lower(a):
        return a / jax.lax.psum(jnp.sum(a), "x")

    return mesh, lower, place, (place,)


normalized.def_partition(partition=partition, sharding_rule="i j -> i j")
a = jax.device_put(jnp.ones((64, 32)), NamedSharding(mesh, P("x")))
b = jax.jit(normalized)(a)
