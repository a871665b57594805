"""Gathers of what an operation computes: because of a constraint, for no operation, or overwritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.answers import collectives
from inspector.jobs.program_run.causes import CauseFinder
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from tests.answers.test_reasons import reason

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="the programs need 8 devices")

MESH = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))


def array(shape: tuple[int, ...], *spec: str | None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(MESH, P(*spec)))


def step(w: jax.Array, v: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Constrain a computed value to be whole, so that each device takes its own rows of it again."""
    normalized = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
    whole = jax.lax.with_sharding_constraint(normalized, NamedSharding(MESH, P(None, None, None)))
    return jnp.sum((whole @ w) * (whole @ v) * y)


def inspected() -> Snapshot:
    weight, batch = array((64, 64), None, "model"), array((16, 24, 64), "data")
    return inspect(jax.jit(step), weight, weight, batch, batch)


def test_a_constraint_is_the_reason_of_the_gather_of_a_result() -> None:
    snapshot = inspected()
    (program,) = snapshot.programs
    (gather,) = (one for one in program.collectives or () if one.op == "all-gather")
    (conflict,) = (one for one in program.conflicts or () if gather.name in one.collectives)
    # Both operands are sharded as the operation uses them; its result is not.
    moved = {side.value: (side.used, side.spec) for side in conflict.sides if side.used != side.spec}
    assert moved == {"result 0": ((("data",), None, None), (None, None, None))}
    line = step.__code__.co_firstlineno + 3
    assert f"{Path(__file__).name}:{line}" in (reason(program, gather) or "")
    # The products read no more of it than a device had.
    assert gather.operation is None


def test_why_sources_are_unknown_is_said_of_each_collective() -> None:
    class Failing:
        def submit(self, *_: object) -> Failing:
            raise InvalidInput("the worker ended")

        def close(self) -> None: ...

    snapshot = inspected()
    (program,) = snapshot.programs
    (gather,) = (one for one in program.collectives or () if one.op == "all-gather")
    found = CauseFinder(Failing())(snapshot, b"")  # type: ignore[arg-type]
    without = replace(gather, origins=None)
    assert "the worker ended" in str(collectives.cause(found, program, without))


@pytest.mark.parametrize("overwritten", [True, False])
def test_a_gathered_value_is_kept_unless_a_solver_overwrites_it(overwritten: bool) -> None:
    """The backward pass reads the solution, which is in the memory of `y`, or `y` itself."""

    def loss(scale: jax.Array, y: jax.Array) -> jax.Array:
        whole = jax.lax.with_sharding_constraint(y, NamedSharding(MESH, P(None, None)))
        lower = jnp.eye(256) + jnp.tril(jnp.full((256, 256), 0.01), -1) * scale
        if overwritten:
            return jnp.sum(jax.scipy.linalg.solve_triangular(lower, whole, lower=True) ** 2)
        return jnp.sum(jnp.sin(scale * whole))

    scale = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(MESH, P()))
    snapshot = inspect(jax.jit(jax.grad(loss)), scale, array((256, 64), "data"))
    (program,) = snapshot.programs
    assert any(one.op == "all-gather" for one in program.collectives or ())
    assert bool(program.kept_gathers) == (not overwritten)
