"""Sentences that hold under a condition: a case in which each must appear, and one in which it must not."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import audit
from inspector.answers import collectives, memory, partitioned_traffic, summary
from inspector.recording.capture import capture
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Collective, Snapshot
from inspector.sharding import totals
from inspector.sharding.meshes import number_of_devices


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def captured(mesh: jax.sharding.Mesh, *specs: P) -> Snapshot:
    """A product whose operands have these specs: arrays and the compiled program, of the values alone."""
    first, second = (jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, spec)) for spec in specs)
    compiled = jax.jit(lambda a, b: a @ b).lower(first, second).compile()
    return capture({"first": first, "second": second}, programs={"product": compiled})


def test_on_each_device_only_if_every_device_has_the_same_bytes(mesh) -> None:
    everywhere = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("x")))
    alone = jax.device_put(jnp.ones((1024, 1024)), jax.devices()[0])
    for trees, alike in (({"a": everywhere}, True), ({"a": everywhere, "b": alone}, False)):
        snapshot = capture(trees)
        held = [0] * mesh.size
        for array in trees.values():
            for shard in array.addressable_shards:
                held[shard.device.id] += shard.data.nbytes
        assert alike == (len(set(held)) == 1)
        state = totals.totals(snapshot, totals.STATE_GROUPS)
        sentence = summary.state_text(state, number_of_devices(snapshot))
        assert ("on each device" in sentence, "device with the most" in sentence) == (
            alike,
            not alike,
        )
        assert state.per_device == max(held)


def test_runs_no_collective_only_without_one(mesh) -> None:
    for specs, has_one in (((P("x"), P()), False), ((P(None, "x"), P("x")), True)):
        snapshot = captured(mesh, *specs)
        (program,) = snapshot.programs
        assert bool(program.collectives) == has_one
        assert ("runs no collective" in str(collectives.of_program(program, snapshot))) != has_one


def test_an_axis_shards_nothing_only_if_no_array_and_no_input_uses_it(mesh) -> None:
    def apply(weights, x):
        return x @ weights

    for of_weights, of_batch, unused in (
        (P(), P("x"), ["y"]),
        (P("x"), P("y"), []),
        (P("x"), P("x"), []),  # the compiler splits the product over y
        (P("x"), P(None, "y"), []),
        (P(None, "y"), P("x"), []),
    ):
        weights, batch = (
            jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, spec)) for spec in (of_weights, of_batch)
        )
        compiled = jax.jit(apply).lower(weights, batch).compile()
        snapshot = capture({"weights": weights}, programs={"apply": compiled})
        sends = compiled.as_text().count("replica_groups=")
        findings = audit.audit(snapshot)
        messages = [finding.message for finding in findings if "shards nothing" in finding.message]
        assert [message.split()[2] for message in messages] == unused
        assert not (unused and sends)
        # Data parallelism over an axis needs an input that the axis shards.
        parallel = {
            finding.message.split()[2].rstrip(":")
            for finding in findings
            if "plain data parallelism" in finding.message
        }
        named = {"x", "y"} - {axis for entry in of_weights for axis in (entry or ())}
        assert parallel <= named & {axis for entry in of_batch for axis in (entry or ())}


def test_replicated_only_if_each_device_has_the_whole_array(mesh) -> None:
    for spec, whole in ((P(), True), (P(None, None), True), (P("y"), False), (P(None, "x"), False)):
        array = jax.device_put(jnp.ones((512, 512)), NamedSharding(mesh, spec))
        assert array.sharding.is_fully_replicated == whole
        snapshot = capture({"first": array})
        replicated = [
            finding for finding in audit.audit(snapshot) if "is replicated on all 8" in finding.message
        ]
        assert bool(replicated) == whole
        if replicated:
            assert replicated[0].bytes == array.nbytes - array.nbytes // 8


def test_neither_program_sends_anything_only_if_no_collective_is_in_them(mesh) -> None:
    without = captured(mesh, P("x"), P())
    sending = captured(mesh, P(None, "x"), P("x"))

    def sentence(partitioned: Snapshot, compiled: Snapshot) -> str:
        (expected,) = partitioned.programs
        both = replace(compiled, partitioned=(replace(expected, stage="propagated"),))
        (section,) = partitioned_traffic.sections(both)
        return str(section)

    assert "Neither" in sentence(without, without)
    for partitioned, compiled in ((without, sending), (sending, without), (sending, sending)):
        assert "Neither" not in sentence(partitioned, compiled)
    # Bytes that are unknown are not none.
    (program,) = sending.programs
    unknown = tuple(
        replace(collective, wire_bytes_per_device=None) for collective in program.collectives or ()
    )
    assert all(isinstance(collective, Collective) for collective in unknown) and unknown
    hidden = replace(sending, programs=(replace(program, collectives=unknown),))
    assert "Neither" not in sentence(hidden, hidden)


def test_the_share_of_the_largest_axes_is_only_named_beside_others(mesh) -> None:
    snapshot = captured(mesh, P(None, "x"), P("x"))
    (program,) = snapshot.programs
    (only,) = program.collectives or ()
    large, small = (
        replace(only, wire_bytes_per_device=9_990),
        replace(only, wire_bytes_per_device=10, mesh_axes=("y",)),
    )
    for several in ((large, small), (large,)):
        both = replace(snapshot, programs=(replace(program, collectives=several),))
        text = str(collectives.of_program(both.programs[0], both))
        assert ("of it over" in text) == (len(several) > 1)
        assert "100% of it" not in text


def test_a_shape_that_no_line_makes_is_one_of_hlo() -> None:
    """XLA moves the dimensions of an operand, which the line returns in another order."""

    def attend(w, x):
        keys = jnp.einsum("btd,dhk->bthk", x, w)
        return jnp.einsum("bthk,bshk->bhts", keys, keys)

    function = jax.jit(attend)
    arguments = jax.ShapeDtypeStruct((64, 8, 8), "float32"), jax.ShapeDtypeStruct((4, 32, 64), "float32")
    (program,) = inspect(function, *arguments).programs
    assert program.memory_use is not None
    shapes = {value.shape for value in program.memory_use.values}
    compiled = function.lower(*arguments).compile().as_text()
    assert all(shape in compiled for shape in shapes)
    traced = [one.aval for equation in jax.make_jaxpr(attend)(*arguments).eqns for one in equation.outvars]
    assert not shapes <= {f"f32{[*value.shape]}".replace(" ", "") for value in (*arguments, *traced)}
    said = str(memory.section(inspect(function, *arguments), None))
    assert "Shape in HLO" in said
