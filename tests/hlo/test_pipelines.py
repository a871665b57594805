"""Loops that are pipelines, as JAX code writes them, and loops that send to a neighbor but are none.

Of s stages, m microbatches and r stages on each device, a loop has r·m + d·(s − 1) iterations; d is 2 if a
result waits before it is sent. The numbers of the tests are those that the programs were built with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import hlo
from inspector.hlo import pipelines as module_of_pipelines
from inspector.hlo.analysis import Analysis
from inspector.hlo.pipelines import pipelines
from inspector.records.snapshot import Pipeline

pytestmark = pytest.mark.close_to_jax

STAGES, ROWS, WIDTH = 4, 8, 32
MESH = Mesh(
    np.array(jax.devices()[:8]).reshape(2, STAGES),
    ("data", "stage"),
    axis_types=(AxisType.Auto,) * 2,
)
NEXT = [(n, (n + 1) % STAGES) for n in range(STAGES)]
WEIGHTS, REPEATED, LAYERS = (STAGES, WIDTH, WIDTH), (2, STAGES, WIDTH, WIDTH), (12, WIDTH, WIDTH)


def sharded(shape: tuple[int, ...], *axes: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(MESH, P(*axes)))


def batches(number: int) -> jax.ShapeDtypeStruct:
    return sharded((number, 2 * ROWS, WIDTH), None, "data")


def constrained(x: Any, *axes: Any) -> Any:
    return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P(*axes)))


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def varying(x: Any, *axes: str) -> Any:
    return jax.lax.pcast(x, axes or "stage", to="varying")


def on_stages(body: Callable[..., Any]) -> Callable[..., Any]:
    specs = P("stage"), P(None, "data")
    return jax.shard_map(body, mesh=MESH, in_specs=specs, out_specs=specs[1])


def gpipe(w: Any, x: Any, unroll: int = 1, wraps: bool = True, iterations: Any = None) -> Any:
    """Read each microbatch from its place in a stack, and write it to its place in another one."""

    def body(w: Any, x: Any) -> Any:
        stage, number = jax.lax.axis_index("stage"), x.shape[0]

        def step(carry: Any, t: Any) -> Any:
            state, outputs = carry
            out = layer(w[0], jnp.where(stage == 0, x[jnp.minimum(t, number - 1)], state))
            done = jnp.maximum(t - STAGES + 1, 0)
            is_last = (stage == STAGES - 1) & (t >= STAGES - 1)
            outputs = jnp.where(is_last, outputs.at[done].set(out), outputs)
            return (jax.lax.ppermute(out, "stage", NEXT if wraps else NEXT[:-1]), outputs), None

        carry = (varying(jnp.zeros_like(x[0])), varying(jnp.zeros_like(x)))
        if iterations is not None:
            _, outputs = jax.lax.fori_loop(0, iterations, lambda t, carry: step(carry, t)[0], carry)
        else:
            steps = jnp.arange(number + STAGES - 1)
            (_, outputs), _ = jax.lax.scan(step, carry, steps, unroll=unroll)
        return jax.lax.psum(jnp.where(stage == STAGES - 1, outputs, 0), "stage")

    return on_stages(body)(w, x)


def sent_first(w: Any, x: Any, begun: int = 0) -> Any:
    """Send at the beginning of an iteration, as XLA for GPUs does; the first ones can be before the loop."""

    def body(w: Any, x: Any) -> Any:
        stage, number = jax.lax.axis_index("stage"), x.shape[0]

        def step(carry: Any, t: Any) -> Any:
            state, outputs = carry
            state = jnp.where(t == begun, state, jax.lax.ppermute(state, "stage", NEXT))
            state = layer(w[0], jnp.where(stage == 0, x[jnp.minimum(t, number - 1)], state))
            done = jnp.maximum(t - STAGES + 1, 0)
            is_last = (stage == STAGES - 1) & (t >= STAGES - 1)
            return (state, jnp.where(is_last, outputs.at[done].set(state), outputs)), None

        carry = (varying(jnp.zeros_like(x[0])), varying(jnp.zeros_like(x)))
        for _ in range(begun):
            state, outputs = carry
            state = layer(w[0], jnp.where(stage == 0, x[0], state))
            carry = (jax.lax.ppermute(state, "stage", NEXT), outputs)
        (_, outputs), _ = jax.lax.scan(step, carry, jnp.arange(begun, number + STAGES - 1))
        return jax.lax.psum(jnp.where(stage == STAGES - 1, outputs, 0), "stage")

    return on_stages(body)(w, x)


def padded(w: Any, x: Any) -> Any:
    """Scan over microbatches that are followed by zeros, and keep the last results."""

    def body(w: Any, x: Any) -> Any:
        stage, number = jax.lax.axis_index("stage"), x.shape[0]
        x = jnp.concatenate([x, jnp.zeros((STAGES - 1, *x.shape[1:]))])

        def step(state: Any, given: Any) -> Any:
            out = layer(w[0], jnp.where(stage == 0, given, state))
            return jax.lax.ppermute(out, "stage", NEXT), jnp.where(stage == STAGES - 1, out, 0)

        _, outputs = jax.lax.scan(step, varying(jnp.zeros_like(x[0])), x)
        return jax.lax.psum(outputs[-number:], "stage")

    return on_stages(body)(w, x)


def rolled(w: Any, x: Any) -> Any:
    """Map over stages, and roll the dimension that is sharded over them (GSPMD, section 3.3)."""
    number = x.shape[0]
    x = jnp.concatenate([x, jnp.zeros((STAGES - 1, *x.shape[1:]))])

    def step(state: Any, given: Any) -> Any:
        state = constrained(jnp.roll(state, 1, axis=0).at[0].set(given), "stage", "data")
        state = constrained(jax.vmap(layer)(w, state), "stage", "data")
        return state, state[-1]

    state = constrained(jnp.zeros((STAGES, *x.shape[1:])), "stage", "data")
    return jax.lax.scan(step, state, x)[1][number - x.shape[0] :]


def rotated(w: Any, x: Any, delay: int = 1) -> Any:
    """Shard the microbatches over stages and rotate them, also through several stages of each device."""
    number = x.shape[0]
    repeats = 1 if w.ndim == 3 else w.shape[0]
    share = number // STAGES
    waits = repeats > 1 and number > delay * STAGES
    empty = constrained(jnp.zeros((STAGES, *x.shape[1:])), "stage", "data")
    place = jax.lax.broadcasted_iota("int32", empty.shape, 0)

    def step(carry: Any, t: Any) -> Any:
        stream, state, previous, stored, leaving = carry
        again = stored[:, t % number] if waits else state
        first = jnp.where(t < number, stream[:, t % share], again)
        given = constrained(jnp.where(place == 0, first, state), "stage", "data")
        own = w
        if repeats > 1:
            turn = jnp.maximum(t - delay * jnp.arange(STAGES), 0) // number
            own = jax.vmap(lambda a, n: jax.lax.dynamic_index_in_dim(a, n, 0, False), (1, 0))(w, turn)
        out = constrained(jax.vmap(layer)(own, given), "stage", "data")
        if waits:
            at = (t - delay * (STAGES - 1) - 1) % number
            stored = jax.lax.dynamic_update_slice_in_dim(stored, jnp.roll(leaving, 1, 0)[:, None], at, 1)
        kept = jnp.where(place == STAGES - 1, out, jnp.roll(stream[:, t % share], -1, 0))
        stream = jax.lax.dynamic_update_slice_in_dim(stream, kept[:, None], t % share, 1)
        stream = constrained(stream, "stage", None, "data")
        state = jnp.roll(out if delay == 1 else previous, 1, 0)
        return (stream, state, out if delay == 2 else previous, stored, out if waits else leaving), None

    stream = constrained(x.reshape(STAGES, share, *x.shape[1:]), "stage", None, "data")
    stored = constrained(jnp.zeros((STAGES, *x.shape)), "stage", None, "data") if waits else jnp.zeros(())
    carry = (stream, empty, empty if delay == 2 else jnp.zeros(()), stored, empty if waits else stored)
    steps = jnp.arange(number * repeats + delay * (STAGES - 1))
    return jax.lax.scan(step, carry, steps)[0][0]


def recomputed(w: Any, x: Any) -> Any:
    """Run attention and several layers in each stage, in an inner scan that is computed again."""
    number = x.shape[0]

    def block(x: Any, w: Any) -> Any:
        keys = x @ w
        return x + jax.nn.softmax(x @ jnp.swapaxes(keys, -1, -2)) @ keys, None

    stage = jax.checkpoint(lambda w, x: jax.lax.scan(block, x, w)[0])

    def step(carry: Any, t: Any) -> Any:
        state, outputs = carry
        state = jnp.roll(state, 1, axis=0).at[0].set(x[jnp.minimum(t, number - 1)])
        state = constrained(jax.vmap(stage)(w, constrained(state, "stage", "data")), "stage", "data")
        done = jnp.maximum(t - STAGES + 1, 0)
        return (state, jax.lax.dynamic_update_index_in_dim(outputs, state[-1], done, 0)), None

    state = constrained(jnp.zeros((STAGES, *x.shape[1:])), "stage", "data")
    return jax.lax.scan(step, (state, jnp.zeros_like(x)), jnp.arange(number + STAGES - 1))[0][1]


def gradient(of: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda w, x: jnp.mean(of(w, x) ** 2))


def found(function: Callable[..., Any], *arguments: Any) -> tuple[Pipeline, ...]:
    (module,) = hlo.parser.parse(jax.jit(function).lower(*arguments).compile().as_text())
    analysis = Analysis(module)
    known = pipelines(analysis, hlo.collectives.collectives(module, None, analysis))
    assert known is not None
    return known


def facts(pipeline: Pipeline) -> tuple[Any, ...]:
    assert pipeline.stages == STAGES
    assert pipeline.iterations is not None
    assert pipeline.bubble == pipeline.idle / pipeline.iterations
    return pipeline.microbatches, pipeline.repeats, pipeline.delay, pipeline.iterations


@pytest.mark.parametrize(
    ("function", "shape", "microbatches", "expected"),
    [
        (gpipe, WEIGHTS, 8, (8, 1, 1, 11)),
        (lambda w, x: gpipe(w, x, wraps=False), WEIGHTS, 8, (8, 1, 1, 11)),
        (lambda w, x: gpipe(w, x, unroll=2), WEIGHTS, 9, (9, 1, 1, 12)),
        (lambda w, x: gpipe(w, x, unroll=2), WEIGHTS, 8, (8, 1, 1, 11)),  # one iteration after the loop
        (sent_first, WEIGHTS, 8, (8, 1, 1, 11)),
        (lambda w, x: sent_first(w, x, begun=1), WEIGHTS, 8, (8, 1, 1, 11)),
        (padded, WEIGHTS, 12, (12, 1, 1, 15)),
        (rolled, WEIGHTS, 12, (12, 1, 1, 15)),
        (rotated, WEIGHTS, 4, (4, 1, 1, 7)),
        (rotated, WEIGHTS, 12, (12, 1, 1, 15)),
        (lambda w, x: rotated(w, x, delay=2), WEIGHTS, 8, (8, 1, 2, 14)),
        (rotated, REPEATED, 4, (4, 2, 1, 11)),
        (rotated, REPEATED, 8, (8, 2, 1, 19)),
        (lambda w, x: rotated(w, x, delay=2), REPEATED, 8, (8, 2, 2, 22)),
        (lambda w, x: rotated(w, x, delay=2), REPEATED, 12, (12, 2, 2, 30)),
    ],
)  # fmt: skip
def test_pipelines_have_their_microbatches(
    function: Callable[..., Any], shape: tuple[int, ...], microbatches: int, expected: tuple[int, ...]
) -> None:
    axes = ("stage",) if len(shape) == 3 else (None, "stage")
    (pipeline,) = found(function, sharded(shape, *axes), batches(microbatches))
    assert facts(pipeline) == expected
    assert not pipeline.backward


@pytest.mark.parametrize(
    ("function", "shape", "expected"),
    [
        (gpipe, WEIGHTS, (8, 1, 1, 11)),
        (padded, WEIGHTS, (8, 1, 1, 11)),
        (rolled, WEIGHTS, (8, 1, 1, 11)),
        (rotated, REPEATED, (8, 2, 1, 19)),
        (recomputed, (STAGES, 2, WIDTH, WIDTH), (8, 1, 1, 11)),
    ],
)
def test_the_backward_pass_is_a_pipeline_too(
    function: Callable[..., Any], shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    axes = (None, "stage") if shape == REPEATED else ("stage",)
    forward, backward = found(gradient(function), sharded(shape, *axes), batches(8))
    assert facts(forward) == facts(backward) == expected
    assert (forward.backward, backward.backward) == (False, True)
    # Each product of the forward pass has two in the backward pass.
    assert (backward.flops or 0) >= 2 * (forward.flops or 1) * 0.99


def test_all_iterations_count_as_work() -> None:
    (pipeline,) = found(rolled, sharded(WEIGHTS, "stage"), batches(8))
    products = 11 * 2 * ROWS * WIDTH * WIDTH
    assert products <= (pipeline.flops or 0) < 1.1 * products


def test_a_trip_count_that_depends_on_data() -> None:
    arguments = sharded(WEIGHTS, "stage"), batches(8), jax.ShapeDtypeStruct((), "int32")
    (pipeline,) = found(lambda w, x, n: gpipe(w, x, iterations=n), *arguments)
    assert (pipeline.stages, pipeline.stack, pipeline.loop is None) == (STAGES, 8, False)
    assert (pipeline.microbatches, pipeline.iterations, pipeline.bubble) == (None, None, None)


def ring_product(w: Any, x: Any) -> Any:
    """Multiply with the weights of all devices, one after the other."""

    def step(carry: Any, _: Any) -> Any:
        w, total = carry
        return (jax.lax.ppermute(w, "stage", NEXT), total + x @ w[0]), None

    return jax.lax.psum(jax.lax.scan(step, (w, varying(jnp.zeros_like(x))), None, length=8)[0][1], "stage")


def ring_sum(w: Any, x: Any) -> Any:
    """Send sums of products on, which becomes a reduce-scatter."""
    stage, columns = jax.lax.axis_index("stage"), WIDTH // STAGES

    def step(total: Any, t: Any) -> Any:
        part = jax.lax.dynamic_slice_in_dim(w[0], (stage - t - 1) % STAGES * columns, columns, 1)
        return jax.lax.ppermute(total, "stage", NEXT) + x @ part, None

    total = varying(jnp.zeros((*x.shape[:-1], columns)), "data", "stage")
    return jax.lax.psum(jax.lax.scan(step, total, jnp.arange(8))[0], "stage")


def federated(w: Any, x: Any) -> Any:
    """Hand the weights on after a step of training with own data."""

    def step(w: Any, x: Any) -> Any:
        slope = jax.grad(lambda w: jnp.mean(layer(w[0], x) ** 2))(w)
        return jax.lax.ppermute(w - 0.1 * slope, "stage", NEXT), None

    w = jax.lax.scan(step, varying(w, "data"), varying(x))[0]
    return jax.lax.psum(jnp.sum(w), ("stage", "data")) + x


def gossip(w: Any, x: Any) -> Any:
    """Average the weights with those of a neighbor after each step."""

    def step(w: Any, x: Any) -> Any:
        w = w - 0.1 * jax.grad(lambda w: jnp.mean(layer(w[0], x) ** 2))(w)
        return (w + jax.lax.ppermute(w, "stage", NEXT)) / 2, None

    w = jax.lax.scan(step, varying(w, "data"), varying(x))[0]
    return jax.lax.psum(jnp.sum(w), ("stage", "data")) + x


@pytest.mark.parametrize("body", [ring_product, ring_sum, federated, gossip])
def test_rings_of_weights_and_sums_are_no_pipelines(body: Callable[..., Any]) -> None:
    assert found(on_stages(body), sharded(WEIGHTS, "stage"), batches(8)) == ()


def ring_attention(queries: Any, keys: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        keys, out, highest, total = carry
        scores = queries @ keys.T
        now = jnp.maximum(highest, scores.max(-1))
        weights, scale = jnp.exp(scores - now[:, None]), jnp.exp(highest - now)
        out = out * scale[:, None] + weights @ keys
        return (jax.lax.ppermute(keys, "stage", NEXT), out, now, total * scale + weights.sum(-1)), None

    empty = varying(jnp.zeros(queries.shape))
    start = (keys, empty, empty[:, 0] - 1e9, empty[:, 0])
    _, out, _, total = jax.lax.scan(step, start, None, length=STAGES)[0]
    return out / total[:, None]


def attention_in_layers(x: Any, w: Any) -> Any:
    """Scan over layers whose keys go around, and keep the result of each."""

    def step(x: Any, w: Any) -> Any:
        keys, out = x @ w, 0
        for _ in range(STAGES):
            out += jax.nn.softmax(x @ keys.T) @ keys
            keys = jax.lax.ppermute(keys, "stage", NEXT)
        return x + out, x

    last, every = jax.lax.scan(step, x, w)
    return last + every.sum(0)


def keys_of_neighbor(x: Any, w: Any) -> Any:
    """Attend to the keys of the own and the next device, without a residual."""

    def step(x: Any, w: Any) -> Any:
        keys = jnp.concatenate([jax.lax.ppermute(x @ w, "stage", NEXT), x @ w])
        x = jax.nn.softmax((x @ w.T) @ keys.T) @ keys
        return x, x

    last, every = jax.lax.scan(step, x, w)
    return last + every.sum(0)


def recurrent(x: Any, w: Any) -> Any:
    """Go through a sharded sequence, one device after the other: there is one microbatch."""

    def step(state: Any, _: Any) -> Any:
        state = jax.lax.scan(lambda h, row: (jnp.tanh(h @ w[0] + row), None), state, x)[0]
        return jax.lax.ppermute(state, "stage", NEXT), state

    return x + jax.lax.scan(step, varying(jnp.zeros(WIDTH)), jnp.arange(STAGES))[1].sum(0)


@pytest.mark.parametrize("body", [attention_in_layers, keys_of_neighbor, recurrent])
@pytest.mark.parametrize("of", [lambda function: function, gradient])
def test_rings_inside_of_layers_are_no_pipelines(body: Callable[..., Any], of: Callable[..., Any]) -> None:
    layers = jax.shard_map(body, mesh=MESH, in_specs=(P("stage"), P()), out_specs=P("stage"))
    assert found(of(layers), sharded((64, WIDTH), "stage"), sharded(LAYERS)) == ()


@pytest.mark.parametrize("of", [lambda function: function, gradient])
def test_ring_attention_is_no_pipeline(of: Callable[..., Any]) -> None:
    rings = jax.shard_map(ring_attention, mesh=MESH, in_specs=P("stage"), out_specs=P("stage"))
    rows = sharded((64, WIDTH), "stage")
    assert found(of(rings), rows, rows) == ()


def with_parts(count: int) -> hlo.module.Module:
    """A loop that carries so many arrays, and sends the first to the next device after a product."""
    state = f"(s32[], {', '.join(['f32[8,8]'] * (count + 1))})"
    parts = [f"p.{n} = f32[8,8] get-tuple-element(s), index={n + 2}" for n in range(count)]
    sums = [f"q.{n} = f32[8,8] add(p.{n}, p.{max(n - 1, 0)})" for n in range(count)]
    results = ", ".join(f"q.{n}" for n in range(count))
    lines = (
        "HloModule m, num_partitions=4",
        "body {",
        f"s = {state} parameter(0)",
        "i = s32[] get-tuple-element(s), index=0",
        "one = s32[] constant(1)",
        "n = s32[] add(i, one)",
        "x = f32[8,8] get-tuple-element(s), index=1",
        *parts,
        *sums,
        "d = f32[8,8] dot(x, p.0), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "c = f32[8,8] collective-permute(d), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
        f"ROOT t = {state} tuple(n, c, {results})",
        "}",
        "cond {",
        f"s.2 = {state} parameter(0)",
        "i.2 = s32[] get-tuple-element(s.2), index=0",
        "k = s32[] constant(7)",
        "ROOT l = pred[] compare(i.2, k), direction=LT",
        "}",
        "ENTRY main {",
        f"a = {state} parameter(0)",
        f"ROOT w = {state} while(a), condition=cond, body=body",
        "}",
    )
    (module,) = hlo.parser.parse("\n".join(lines))
    return module


@pytest.mark.first_jax_is_enough
def test_a_loop_that_carries_many_arrays_is_read_at_once() -> None:
    analysis = Analysis(with_parts(1000))
    collectives = hlo.collectives.collectives(analysis.module, None, analysis)
    started = time.process_time()
    assert pipelines(analysis, collectives) == ()  # no array has microbatches
    assert time.process_time() - started < 1


@pytest.mark.first_jax_is_enough
def test_pipelines_of_a_program_that_is_too_long_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = jax.jit(gradient(gpipe)).lower(sharded(WEIGHTS, "stage"), batches(8))
    (module,) = hlo.parser.parse(jitted.compile().as_text())
    analysis = Analysis(module)
    collectives = hlo.collectives.collectives(module, None, analysis)
    assert pipelines(analysis, collectives)
    monkeypatch.setattr(module_of_pipelines, "_LEAST_STEPS", 0)
    monkeypatch.setattr(module_of_pipelines, "_STEPS_PER_INSTRUCTION", 0)
    assert pipelines(analysis, collectives) is None
