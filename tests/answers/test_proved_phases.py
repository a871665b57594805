"""An optimizer needs a backward pass, and a backward pass is what JAX's autodiff transposes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.answers import collectives, memory
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Program

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="the programs need 8 devices")


def on(*spec: str | None) -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.devices()[:8]), ("model",)), P(*spec))


def array(shape: tuple[int, ...], *spec: str | None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(*spec))


def said(function: object, *arguments: object) -> tuple[Program, str]:
    """Return the program of a function, and what is said about its memory and each collective."""
    snapshot = inspect(function, *arguments)
    (program,) = snapshot.programs
    about = [collectives.cause(snapshot, program, collective) for collective in program.collectives or ()]
    assert about
    return program, f"{about}{memory.section(snapshot, None)}"


def names(program: Program) -> set[str]:
    assert program.memory_use is not None
    return {*program.memory_use.phases} - {"unknown"}


def update(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ w)


def train_step(state: jax.Array, key: jax.Array) -> jax.Array:
    """Run a few steps of a simulation."""
    return jax.lax.fori_loop(0, 3, lambda _, s: jnp.sin(s) - 0.1 * (jnp.roll(s, 1, 0) - key), state)


def transpose(w: jax.Array, y: jax.Array) -> jax.Array:
    return jax.linear_transpose(lambda x: x @ w, jax.ShapeDtypeStruct((64, 512), jnp.float32))(y)[0]


@pytest.mark.parametrize("function", [update, train_step, transpose])
def test_names_of_functions_are_no_phases(function) -> None:
    sharded = ("model",) if function is train_step else (None, "model")
    w = array((512, 512), *(sharded if function is not update else ("model",)))
    program, text = said(
        jax.jit(function), w, array((64, 512), *sharded) if function is not train_step else w
    )
    assert not names(program)
    assert "optimizer" not in text and "backward" not in text and "forward" not in text


def test_a_train_step_of_any_name_has_all_phases() -> None:
    def run(w: jax.Array, x: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) @ w.T))(w)
        return w - gradient / jnp.linalg.norm(gradient)

    program, text = said(jax.jit(run), array((512, 512), "model"), array((64, 512), None, "model"))
    assert {"backward", "optimizer"} <= names(program) <= {"forward", "backward", "optimizer"}
    assert "backward" in text
