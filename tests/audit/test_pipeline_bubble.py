"""The bubble of a pipeline, and loops that also send to a neighbor but are none."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.recording.inspected import inspect
from inspector.records.snapshot import Snapshot

pytestmark = pytest.mark.close_to_jax

STAGES, ROWS, WIDTH = 4, 8, 32
MESH = Mesh(
    np.array(jax.devices()[:8]).reshape(2, STAGES),
    ("data", "stage"),
    axis_types=(AxisType.Auto,) * 2,
)


def sharded(shape: tuple[int, ...], *axes: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(MESH, P(*axes)))


def weights() -> jax.ShapeDtypeStruct:
    return sharded((STAGES, WIDTH, WIDTH), "stage")


def batches(number: int) -> jax.ShapeDtypeStruct:
    return sharded((number, 2 * ROWS, WIDTH), None, "data")


def pipeline(w: Any, xs: Any) -> Any:
    """Run all stages on each microbatch: GPipe."""

    def body(w: Any, xs: Any) -> Any:
        stage, number = jax.lax.axis_index("stage"), xs.shape[0]

        def step(carry: Any, t: Any) -> Any:
            state, outputs = carry
            out = jnp.tanh(jnp.where(stage == 0, xs[jnp.minimum(t, number - 1)], state) @ w[0])
            done = jnp.maximum(t - STAGES + 1, 0)
            is_last = (stage == STAGES - 1) & (t >= STAGES - 1)
            outputs = jnp.where(is_last, outputs.at[done].set(out), outputs)
            following = [(n, (n + 1) % STAGES) for n in range(STAGES)]
            return (jax.lax.ppermute(out, "stage", following), outputs), None

        zero = jax.lax.pcast(jnp.zeros_like(xs), "stage", to="varying")
        steps = jnp.arange(number + STAGES - 1)
        (_, outputs), _ = jax.lax.scan(step, (zero[0], zero), steps)
        return jax.lax.psum(jnp.where(stage == STAGES - 1, outputs, 0), "stage")

    specs = P("stage"), P(None, "data")
    return jax.shard_map(body, mesh=MESH, in_specs=specs, out_specs=P(None, "data"))(w, xs)


def ring(w: Any, xs: Any) -> Any:
    """Multiply with the weights of all devices, one after the other."""

    def body(w: Any, xs: Any) -> Any:
        following = [(n, (n + 1) % STAGES) for n in range(STAGES)]

        def step(carry: Any, _: Any) -> Any:
            w, total = carry
            return (jax.lax.ppermute(w, "stage", following), total + xs @ w[0]), None

        own = jax.lax.pcast(jnp.zeros_like(xs), "stage", to="varying")
        w = jax.lax.pcast(w, "data", to="varying")
        total = jax.lax.scan(step, (w, own), None, length=STAGES)[0][1]
        return jax.lax.psum(total, "stage")

    specs = P("stage"), P(None, "data")
    return jax.shard_map(body, mesh=MESH, in_specs=specs, out_specs=P(None, "data"))(w, xs)


def stencil(w: Any, xs: Any) -> Any:
    """Exchange rows with neighbors in each of many steps."""

    def body(xs: Any) -> Any:
        following = [(n, n + 1) for n in range(STAGES - 1)]

        def step(x: Any, _: Any) -> Any:
            above = jax.lax.ppermute(x[-1], "stage", following)
            return x + jnp.roll(x, 1, 0).at[0].set(above), None

        return jax.lax.scan(step, xs, None, length=12)[0]

    return jax.shard_map(body, mesh=MESH, in_specs=P("stage"), out_specs=P("stage"))(xs)


def bubbles(snapshot: Snapshot) -> list[float | None]:
    return [finding.ratio for finding in snapshot.findings if finding.code == "pipeline-bubble"]


@pytest.mark.parametrize("microbatches", [8, 3])
def test_the_bubble_of_a_pipeline(microbatches: int) -> None:
    snapshot = inspect(jax.jit(pipeline), weights(), batches(microbatches))
    assert bubbles(snapshot) == [(microbatches + STAGES - 1) / microbatches]
    assert not [finding for finding in snapshot.findings if finding.code == "repeated-work"]


def test_the_backward_pass_has_the_same_bubble() -> None:
    def grads(w: Any, xs: Any) -> Any:
        return jax.grad(lambda w: jnp.mean(pipeline(w, xs) ** 2))(w)

    snapshot = inspect(jax.jit(grads), weights(), batches(8))
    (program,) = snapshot.programs
    assert [(pipeline.stages, pipeline.microbatches) for pipeline in program.pipelines] == [(STAGES, 8)] * 2
    assert bubbles(snapshot) == [11 / 8]


def test_many_microbatches_have_a_small_bubble() -> None:
    assert bubbles(inspect(jax.jit(pipeline), weights(), batches(40))) == []


@pytest.mark.parametrize("function", [ring, stencil])
def test_other_loops_that_send_to_a_neighbor_are_no_pipeline(function: Any) -> None:
    assert bubbles(inspect(jax.jit(function), weights(), batches(8))) == []
