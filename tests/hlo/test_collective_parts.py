"""A combined collective has the bytes, the arrays and the operation of each of its parts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from inspector.compiled import program_text
from inspector.recording.capture import capture_compiled
from inspector.records.snapshot import Collective, Mesh, MeshAxis, ProgramArray
from inspector.sharding.traffic import parts_of

MESH = Mesh((MeshAxis("x", 2),), (0, 1))
HEAD = """HloModule m, num_partitions=2
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
"""
GROUPS = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"


def collective_of(body: str) -> Collective:
    """Return the collective of a program of two parameters and a batch that returns both parameters."""
    arrays = [
        ProgramArray("input", path, None, None, None) for path in ("params/p", "params/q", "batch/x")
    ] + [ProgramArray("output", path, None, None, None) for path in ("params/p", "params/q")]
    (collective,) = program_text.read(HEAD + body, MESH, arrays).collectives or ()
    return collective


def named(name: str) -> str:
    return f'metadata={{op_name="jit(step)/{name}"}}'


REDUCED = f"""ENTRY e {{
  p = f32[4] parameter(0)
  q = f32[8] parameter(1)
  x = f32[16] parameter(2)
  gp = f32[4] slice(x), slice={{[0:4]}}, {named("first")}
  gq = f32[8] slice(x), slice={{[4:12]}}, {named("second")}
  same = f32[8] bitcast(gq)
  other = f32[2] slice(x), slice={{[12:14]}}, {named("third")}
  r = (f32[4], f32[8], f32[2]) all-reduce(gp, same, other), to_apply=add, {GROUPS}, {named("first")}
  rp = f32[4] get-tuple-element(r), index=0
  rq = f32[8] get-tuple-element(r), index=1
  up = f32[4] subtract(p, rp)
  uq = f32[8] subtract(q, rq)
  ROOT t = (f32[4], f32[8]) tuple(up, uq)
}}"""


def test_parts_of_a_combined_sum() -> None:
    collective = collective_of(REDUCED)
    parts = collective.parts or ()
    assert [part.payload_bytes for part in parts] == [16, 32, 8]
    assert [part.inputs for part in parts] == [("batch/x",)] * 3
    assert [part.outputs for part in parts] == [("params/p",), ("params/q",), ()]
    # Operations that make the operands; the text names one of them.
    assert [part.op_name for part in parts] == [f"jit(step)/{name}" for name in ("first", "second", "third")]


def test_what_the_code_combines_has_its_own_lines() -> None:
    """The compiler gives what takes a result the name and the line of the collective that it was."""

    def step(x):
        first = jax.lax.psum(x * 2, "x")
        return first, jax.lax.pmax(x, "x"), jax.lax.pmean(x[:, :2] + 1, "x")

    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=P("x"), out_specs=P())
    compiled = jax.jit(mapped).lower(jax.ShapeDtypeStruct((4, 8), "float32")).compile()
    combined = [one for one in capture_compiled(compiled).programs[0].collectives if len(one.parts or ()) > 1]
    first = step.__code__.co_firstlineno + 1
    (parts,) = map(parts_of, combined)
    assert {(part.call, part.source) for part in parts} == {
        ("psum", f"test_collective_parts.py:{first}"),
        ("pmean", f"test_collective_parts.py:{first + 1}"),
    }


def test_buffers_of_a_combined_collective_have_their_own_lines() -> None:
    """The trace of JAX says which line makes a result of which shape."""

    def step(x):
        first = jax.lax.psum(x * 2, "x")
        second = jax.lax.psum(x[:, :600] + 1, "x")
        third = jax.lax.psum(x[:, :700] - 1, "x")
        return (first @ first.T).sum() + (second @ second.T).sum() + (third @ third.T).sum()

    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=P("x"), out_specs=P())
    x = jax.ShapeDtypeStruct((16, 800), "float32")
    (program,) = capture_compiled(jax.jit(mapped).lower(x).compile()).programs
    (combined,) = [one for one in program.collectives or () if len(one.parts or ()) > 1]
    assert program.memory_use is not None
    lines = {value.shape: value.source for value in program.memory_use.values if value.name == combined.name}
    (inner,) = [equation.params["jaxpr"] for equation in jax.make_jaxpr(mapped)(x).eqns]
    sums = [equation for equation in inner.eqns if equation.primitive.name.startswith("psum")]
    first = step.__code__.co_firstlineno + 1
    shapes = [",".join(map(str, equation.outvars[0].aval.shape)) for equation in sums[:3]]
    expected = {f"f32[{shape}]": f"test_collective_parts.py:{n}" for n, shape in enumerate(shapes, first)}
    assert len(lines) > 1 and lines.items() <= expected.items()


def test_what_parts_send_adds_up() -> None:
    collective = collective_of(REDUCED)
    sent = parts_of(collective)
    assert [part.payload_bytes for part in sent] == [16, 32, 8]
    assert [part.wire_bytes_per_device for part in sent] == [16, 32, 8]
    assert sum(part.wire_bytes_per_device or 0 for part in sent) == (collective.wire_bytes_per_device)
    assert [part.arrays for part in sent] == [
        ("batch/x", "params/p"),
        ("batch/x", "params/q"),
        ("batch/x",),
    ]


def test_parts_of_a_combined_asynchronous_gather() -> None:
    body = f"""ENTRY e {{
  p = f32[4] parameter(0)
  q = f32[8] parameter(1)
  x = f32[16] parameter(2)
  s = ((f32[4], f32[8]), (f32[8], f32[16])) all-gather-start(p, q), dimensions={{0}}, {GROUPS}
  d = (f32[8], f32[16]) all-gather-done(s)
  gp = f32[8] get-tuple-element(d), index=0
  gq = f32[16] get-tuple-element(d), index=1
  first = f32[8] negate(gp), {named("first")}
  second = f32[16] multiply(gq, x), {named("second")}
  up = f32[4] slice(first), slice={{[0:4]}}
  uq = f32[8] slice(second), slice={{[0:8]}}
  ROOT t = (f32[4], f32[8]) tuple(up, uq)
}}"""
    parts = collective_of(body).parts or ()
    assert [part.payload_bytes for part in parts] == [32, 64]  # of the results
    assert [part.inputs for part in parts] == [("params/p",), ("params/q",)]
    assert [part.op_name for part in parts] == ["jit(step)/first", "jit(step)/second"]


@pytest.mark.parametrize("op", ["all-to-all"])
def test_operands_that_are_sent_together_are_one_part(op: str) -> None:
    body = f"""ENTRY e {{
  p = f32[4] parameter(0)
  q = f32[8] parameter(1)
  x = f32[16] parameter(2)
  h = f32[4] slice(q), slice={{[0:4]}}
  a = (f32[4], f32[4]) {op}(p, h), {GROUPS}
  gp = f32[4] get-tuple-element(a), index=0
  ROOT t = (f32[4], f32[8]) tuple(gp, q)
}}"""
    collective = collective_of(body)
    (part,) = collective.parts or ()
    assert part.payload_bytes == collective.payload_bytes == 32
    assert part.inputs == ("params/p", "params/q")
    assert parts_of(collective) == (collective,)


def _exchanged(x):
    return jax.lax.all_to_all(x, "x", 0, 0, tiled=True)


@jax.custom_vjp
def _with_rule(x):
    return jnp.sin(x)


_with_rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jax.jit(_exchanged)(g) * jnp.cos(x),))


@pytest.mark.parametrize(
    ("function", "backward"),
    [(lambda x: jnp.tanh(_exchanged(x)), {"autodiff"}), (_with_rule, {None}), (jax.lax.stop_gradient, set())],
)
def test_the_transpose_of_a_call_is_of_autodiff(function, backward) -> None:
    """A rule that calls the collective itself has a stack of calls that no forward pass has."""
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    mapped = jax.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    gradient = jax.jit(jax.grad(lambda x: (mapped(x) ** 2).sum()))
    text = gradient.lower(jax.ShapeDtypeStruct((8, 4), "float32")).compile().as_text()
    collectives = program_text.read(text, MESH, (), local=True).collectives or ()
    asked = {
        one.op_name.partition("transpose(")[1]: one.requested_by
        for one in collectives
        if one.op == "all-to-all" and one.op_name
    }
    assert {by for passed, by in asked.items() if passed} == backward
    forward = {by for passed, by in asked.items() if not passed}
    assert forward == ({"code"} if backward == {"autodiff"} else set())
