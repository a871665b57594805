"""What is said to ask for a sharding: a constraint that the code calls, or the types of explicit axes."""

from __future__ import annotations

import jax
import jax.extend
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from inspector.answers.reasons import shared
from inspector.recording.inspected import inspect

pytestmark = [
    pytest.mark.close_to_jax,
    pytest.mark.skipif(jax.device_count() < 8, reason="the programs need 8 devices"),
]


def primitives(jaxpr: jax.core.Jaxpr) -> set[str]:
    inner = (one for equation in jaxpr.eqns for one in jax.extend.core.jaxprs_in_params(equation.params))
    return {equation.primitive.name for equation in jaxpr.eqns}.union(*map(primitives, inner))


@pytest.mark.parametrize("asks", [False, True])
def test_a_constraint_is_called_one_only_if_the_code_calls_it(asks: bool) -> None:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        w = jax.sharding.reshard(w, P(None, "data")) if asks else jnp.sin(w)
        return jnp.einsum("ij,jk->ik", x, w, out_sharding=P())

    spec = P() if asks else P(None, "data")
    with jax.set_mesh(mesh):
        x, w = (
            jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=jax.NamedSharding(mesh, one))
            for one in (P(), spec)
        )
        jaxpr = jax.make_jaxpr(product)(x, w).jaxpr
        snapshot = inspect(jax.jit(product), x, w)
    calls = primitives(jaxpr) & {"reshard", "sharding_constraint"}
    sources = {
        origin.from_.partition(" test_")[0]
        for collective in snapshot.programs[0].collectives or ()
        for origin in collective.origins or ()
    }
    assert snapshot.programs[0].collectives
    assert bool(calls) == asks
    assert ("constraint" in sources) == asks


# XLA of JAX 0.12 names the gather after the sum before the division, so that its reason is unknown.
@pytest.mark.first_jax_is_enough
@pytest.mark.parametrize("alone", [False, True])
def test_a_constraint_that_alone_uses_a_result_is_the_reason_of_its_gathers(alone: bool) -> None:
    """Another use of the result has it sharded, so the constraint is not known to be the reason."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))

    def mean(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = x.reshape(32, 2, 64).sum(1) / 2
        return pinned(y), y.sum(1) if not alone else x

    def pinned(y: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(y, jax.NamedSharding(mesh, P()))

    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=jax.NamedSharding(mesh, P("data")))
    (program,) = inspect(jax.jit(mean), x).programs
    line = pinned.__code__.co_firstlineno + 1
    (reason,) = (row.reason or "" for row in shared(program) if row.collectives[0].op == "all-gather")
    assert (f"Because of the constraint in test_asked_shardings.py:{line}" in reason) == alone
