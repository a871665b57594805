"""Tests of profiled times and of their sums by kind of operation."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import hlo
from inspector.compiling import compiled_program
from inspector.compiling.compiled_program import events_per_run, traced
from inspector.readers.profiles.kinds import OTHER, kinds_of
from inspector.records.snapshot import Trace

pytestmark = pytest.mark.close_to_jax

DEVICES = 8
GRID = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 4), ("data", "model"))
STEPS = 3


def compiled(function: Callable[..., Any], *arguments: jax.Array) -> tuple[Callable[[], Any], str]:
    executable = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(executable(*arguments))
    return lambda: executable(*arguments), executable.as_text()


def placed(shape: tuple[int, ...], *spec: Any) -> jax.Array:
    return jax.device_put(jnp.ones(shape, jnp.float32), NamedSharding(GRID, P(*spec)))


def layers(x: jax.Array, ws: jax.Array) -> jax.Array:
    """Trace a scan of one large product, its all-reduce and one cheap function."""

    def body(carry: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        result = lax.with_sharding_constraint(carry @ w, NamedSharding(GRID, P("data", None)))
        return jnp.tanh(result), None

    return lax.scan(body, x, ws)[0]


@pytest.fixture(scope="module")
def scanned() -> tuple[Trace, str]:
    run, text = compiled(layers, placed((64, 512), "data", "model"), placed((4, 512, 512), None, "model"))
    trace = traced(run, STEPS, text)
    assert trace is not None
    return trace, text


def seconds(trace: Trace) -> dict[str, float]:
    return {operation.kind: operation.seconds for operation in trace.operations}


def test_kinds_are_opcodes_of_the_program(scanned: tuple[Trace, str]) -> None:
    trace, text = scanned
    opcodes = {
        instruction.opcode
        for module in hlo.parser.parse(text)
        for computation in module.computations
        for instruction in computation.instructions
    }
    assert set(seconds(trace)) <= opcodes
    assert "dot" in seconds(trace) and "all-reduce" in seconds(trace)


def test_device_time_is_at_most_wall_time(scanned: tuple[Trace, str]) -> None:
    trace, _ = scanned
    assert trace.steps == STEPS
    assert 0 < sum(seconds(trace).values()) <= DEVICES * trace.seconds
    assert list(seconds(trace).values()) == sorted(seconds(trace).values(), reverse=True)


def test_every_run_of_a_collective_is_an_event(scanned: tuple[Trace, str]) -> None:
    trace, text = scanned
    counted = sum(
        c.executions for module in hlo.parser.parse(text) for c in hlo.collectives.collectives(module)
    )
    assert counted == 4
    events = {operation.kind: operation.events for operation in trace.operations}
    assert events["all-reduce"] == counted * DEVICES * STEPS


def test_the_number_of_events_is_predicted(scanned: tuple[Trace, str]) -> None:
    trace, text = scanned
    (module,) = hlo.parser.parse(text)
    foretold = events_per_run(module) * DEVICES * STEPS
    # Some instructions, such as loop counters, have no event.
    assert foretold / 4 <= sum(operation.events for operation in trace.operations) <= foretold


def test_the_larger_product_takes_the_time() -> None:
    def step(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x @ x, jnp.sort(y)

    large, small = placed((1024, 1024)), placed((8,))
    result = seconds(traced(*with_steps(*compiled(step, large, small))))
    assert result["dot"] > 10 * result.get("sort", 0)
    large, small = placed((8, 8)), placed((200_000,))
    result = seconds(traced(*with_steps(*compiled(step, large, small))))
    assert result["sort"] > 10 * result.get("dot", 0)


def with_steps(run: Callable[[], Any], text: str) -> tuple[Callable[[], Any], int, str]:
    return run, STEPS, text


def test_unknown_operations_have_the_kind_other() -> None:
    run, _ = compiled(jnp.tanh, placed((256, 256)))
    assert set(seconds(traced(run, STEPS, FUSIONS))) == {OTHER}


# --- Failures and limits -------------------------------------------------------------------------


def test_a_trace_runs_all_steps_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run, text = compiled(jnp.cos, placed((64, 64)))
    calls = []
    for count in (1, 5):
        calls.clear()
        trace = traced(lambda: calls.append(1) or run(), count, text)
        assert trace is not None and trace.steps == count == len(calls)
    assert os.listdir(tmp_path) == []


def test_a_program_that_cannot_be_read_has_no_trace() -> None:
    calls = []
    assert traced(lambda: calls.append(1), 1, "no HLO") is None
    assert not calls


def test_a_run_that_fails_has_no_trace_and_the_next_one_has(scanned: tuple[Trace, str]) -> None:
    _, text = scanned

    def fail() -> None:
        raise RuntimeError("no")

    assert traced(fail, 1, text) is None
    run, text = compiled(jnp.cos, placed((64, 64)))
    assert traced(run, 1, text) is not None


def test_another_profiler_prevents_the_trace_but_not_the_steps(
    tmp_path: Path, scanned: tuple[Trace, str]
) -> None:
    run, text = compiled(jnp.cos, placed((64, 64)))
    calls = []
    with jax.profiler.trace(tmp_path):
        assert traced(lambda: calls.append(1) or run(), 2, text) is None
    assert len(calls) == 2


def test_too_many_events_prevent_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_program, "MOST_EVENTS", 1)
    run, text = compiled(jnp.cos, placed((64, 64)))
    calls = []
    assert traced(lambda: calls.append(1) or run(), 1, text) is None
    assert not calls


FUSIONS = """HloModule m

f1 { p = f32[8,8] parameter(0)  t = f32[8,8] tanh(p)  ROOT d = f32[8,8] dot(t, p) }
f2 { p = f32[8,8] parameter(0)  t = f32[8,8] transpose(p)  ROOT a = f32[8,8] add(t, p) }
f3 { p = f32[8,8] parameter(0)  i = s32[] parameter(1)  c = s32[] constant(1)  j = s32[] add(i, c)
  s = f32[1,8] dynamic-slice(p, j, c)  ROOT b = f32[8] bitcast(s) }
f4 { p = f32[8,8] parameter(0)  ROOT f = f32[8,8] fusion(p), kind=kLoop, calls=f1 }
f5 { p = f32[8,8] parameter(0)  z = f32[] constant(0)
  ROOT r = f32[8] reduce(p, z), dimensions={0}, to_apply=sum }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }

ENTRY e {
  x = f32[8,8] parameter(0)
  one = f32[8,8] fusion(x), kind=kOutput, calls=f1
  two = f32[8,8] fusion(one), kind=kLoop, calls=f2
  i = s32[] constant(3)
  three = f32[8] fusion(two, i), kind=kLoop, calls=f3
  four = f32[8,8] fusion(two), kind=kLoop, calls=f4
  five = f32[8] fusion(four), kind=kInput, calls=f5
  start = f32[8] all-reduce-start(five), replica_groups={}, to_apply=sum
  done = f32[8] all-reduce-done(start)
  ROOT c = f32[8] custom-call(done), custom_call_target="x"
}
"""


def test_a_fusion_has_the_kind_of_its_costliest_instruction() -> None:
    kinds = kinds_of(hlo.parser.parse(FUSIONS))
    assert {name: kinds[name] for name in ("one", "two", "three", "four", "five")} == {
        "one": "dot", "two": "fusion", "three": "dynamic-slice", "four": "dot", "five": "reduce",
    }  # fmt: skip
    assert kinds["start"] == kinds["done"] == "all-reduce"
    assert kinds["c"] == "custom-call"
