"""Collectives in conditions, for callbacks and in sums, and similar programs without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.recording.inspected import inspect
from inspector.records.snapshot import Finding

pytestmark = pytest.mark.close_to_jax

MESH = Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(AxisType.Auto,))
STEPS = 5
Function = Callable[..., Any]


def sharded(shape: tuple[int, ...], *axes: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(MESH, P(*axes)))


ROWS, WEIGHT, BATCHES = (
    sharded((512,), "x"),
    sharded((64, 64)),
    sharded((STEPS, 32, 64), None, "x"),
)


def findings(code: str, function: Function, *arguments: Any) -> list[Finding]:
    snapshot = inspect(jax.jit(function), *arguments)
    return [finding for finding in snapshot.findings if finding.code == code]


def until_all_end(y: Any) -> Any:
    return jax.lax.while_loop(lambda y: jnp.any(y < 1.0), lambda y: y * 1.5, y)


def until_each_ends(y: Any) -> Any:
    return jax.shard_map(until_all_end, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(y)


def a_number_of_times(y: Any) -> Any:
    return jax.lax.fori_loop(0, STEPS, lambda _, y: y * (1 + jnp.max(y)), y)


def until_the_norm_is_small(y: Any) -> Any:
    """Each iteration needs the sum over all devices, as in conjugate gradients."""
    return jax.lax.while_loop(lambda y: jnp.sum(y * y) > 1.0, lambda y: y / (1 + jnp.sum(y)), y)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (until_all_end, 1),
        (until_each_ends, 0),
        (a_number_of_times, 0),
        (until_the_norm_is_small, 0),
    ],
)
def test_a_collective_in_a_condition(function: Function, count: int) -> None:
    assert len(findings("collective-in-condition", function, ROWS)) == count


def save(_: Any) -> None:
    pass


def saved_whole(y: Any) -> Any:
    io_callback(save, None, y)
    return y * 2


def saved_sometimes(y: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        jax.lax.cond(i % 2 == 0, lambda: io_callback(save, None, y), lambda: None)
        return y * 2

    return jax.lax.fori_loop(0, STEPS, step, y)


def saved_in_parts(y: Any) -> Any:
    def body(part: Any) -> Any:
        io_callback(save, None, part)
        return part * 2

    return jax.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(y)


def only_the_mean_is_saved(y: Any) -> Any:
    io_callback(save, None, jnp.mean(y))
    return y * 2


@pytest.mark.parametrize(
    ("function", "count"),
    [(saved_whole, 1), (saved_sometimes, 1), (saved_in_parts, 0), (only_the_mean_is_saved, 0)],
)
def test_a_gather_for_a_callback(function: Function, count: int) -> None:
    gathered = findings("gathered-for-callback", function, ROWS)
    assert len(gathered) == count
    assert all(finding.wire_bytes == 3 * 512 for finding in gathered)  # one execution


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def sum_of_gradients(w: Any, batches: Any) -> Any:
    def step(total: Any, x: Any) -> Any:
        return total + jax.grad(loss)(w, x), None

    return jax.lax.scan(step, jnp.zeros_like(w), batches)[0]


def mean_of_gradients(w: Any, batches: Any) -> Any:
    def step(total: Any, x: Any) -> Any:
        return total + jax.grad(loss)(w, x) / STEPS, None

    return jax.lax.scan(step, jnp.zeros_like(w), batches)[0]


def train(w: Any, batches: Any) -> Any:
    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * jax.grad(loss)(w, x), None

    return jax.lax.scan(step, w, batches)[0]


def reduced_once(w: Any, batches: Any) -> Any:
    def body(w: Any, batches: Any) -> Any:
        own = jax.lax.pcast(w, "x", to="varying")
        return jax.lax.psum(sum_of_gradients(own, batches), "x")

    return jax.shard_map(body, mesh=MESH, in_specs=(P(), P(None, "x")), out_specs=P())(w, batches)


@pytest.mark.parametrize(
    ("function", "count"),
    [(sum_of_gradients, 1), (mean_of_gradients, 1), (train, 0), (reduced_once, 0)],
)
def test_a_sum_that_is_reduced_in_each_iteration(function: Function, count: int) -> None:
    """The weights of the next step of `train` need the sum over devices; a sum of gradients does not."""
    reduced = findings("reduced-each-iteration", function, WEIGHT, BATCHES)
    assert len(reduced) == count
    once = 2 * 64 * 64 * 4 * 3 // 4
    assert all(finding.wire_bytes == (STEPS - 1) * once for finding in reduced)
