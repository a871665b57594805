"""Repeated work, names of values and roles of arguments, each on both sides of its condition."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.answers.array import placed
from inspector.answers.collectives import headline
from inspector.answers.section import Code
from inspector.audit import audit
from inspector.jax_private.checkpoint_names import checkpoint_names
from inspector.prediction.memory import breakdown
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Collective, Finding, Group, RepeatedWork
from inspector.sharding.totals import state_title, state_totals

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="the programs need 8 devices")


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]), ("data",))


def array(shape: tuple[int, ...], *spec: str | None, dtype: object = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh(), P(*spec)))


def findings(code: str, function: object, *arguments: object) -> list[Finding]:
    return [finding for finding in inspect(function, *arguments).findings if finding.code == code]


@pytest.mark.parametrize(
    ("search", "spec"),
    [
        (lambda x: lax.top_k(x, 50)[0], ()),
        (lambda x: jnp.sort(x, 1), ()),
        (lambda x: jnp.sort(x, 1), ("data",)),
    ],
)
def test_a_search_on_every_device_is_repeated(search, spec) -> None:
    scores = array((64, 65536), *spec)
    found = findings("repeated-work", jax.jit(search, out_shardings=scores.sharding), scores)
    assert bool(found) == (not spec)
    assert all(finding.axes == ("data",) for finding in found)


@pytest.mark.parametrize("read", [False, True])
def test_a_reduce_scatter_in_a_loop_is_repeated(read: bool) -> None:
    def accumulated(x: jax.Array) -> jax.Array:
        def one(total: jax.Array, part: jax.Array) -> tuple[jax.Array, None]:
            part = jnp.tanh(part + jnp.sum(total)) if read else part
            return total + lax.psum_scatter(part.T @ part, "data", tiled=True), None

        start = lax.pcast(jnp.zeros((512 // 8, 512)), "data", to="varying")
        return lax.scan(one, start, x)[0]

    mapped = jax.shard_map(accumulated, mesh=mesh(), in_specs=P(None, "data"), out_specs=P("data"))
    found = findings("reduced-each-iteration", jax.jit(mapped), array((8, 64, 512), None, "data"))
    assert len(found) == (not read)
    assert all(finding.wire_bytes == 7 * 7 * 512 * 512 // 8 * 4 for finding in found)


def test_several_arrays_are_moved_at_once() -> None:
    on = NamedSharding(mesh(), P("data"))

    def step(x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = jax.device_put((x, y), on)
        return (checkpoint_name(jnp.sin(x), "s") * y).sum()

    (name,) = checkpoint_names(jax.make_jaxpr(jax.grad(step))(jnp.ones(8), jnp.ones(8)))
    assert (name.name, name.primitive) == ("s", "sin")


@pytest.mark.parametrize("reads", [True, False])
def test_what_meets_computed_values_is_no_batch(reads: bool) -> None:
    """A decode step multiplies a token with one weight, and what it computes with another one."""

    def decode(cache: jax.Array, heads: dict, token: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        cache = lax.dynamic_update_slice(cache, (token @ heads["key"])[:, None], (0, at, 0))
        scores = jnp.einsum("bd,bld->bl", token @ heads["query"], cache)
        return cache, jax.nn.softmax(scores) @ (heads["out"] if reads else jnp.ones((64, 64)))

    key = array((128, 64), None, "data")
    heads = {"key": key, "query": key, "out": array((64, 64), None, "data")}
    snapshot = inspect(
        jax.jit(decode),
        array((8, 64, 64), "data"),
        heads,
        array((8, 128), "data"),
        array((), dtype=jnp.int32),
    )
    uses = {
        sharding.path.partition("/input/")[2]: sharding.use for sharding in snapshot.programs[0].shardings
    }
    assert uses["cache"] == "cache"
    assert uses["token"] is uses["heads/key"] is None, "without a gradient, nothing proves which one is data"


@pytest.mark.parametrize("taken", ["device", "pinned_host"])
def test_a_program_takes_an_argument_in_its_own_memory(taken: str) -> None:
    """The live array of this name is in host memory at the end, after a move."""
    snapshot = inspect(jax.jit(lambda moments: moments * 0.9), array((1024, 1024), "data"))
    (program,) = snapshot.programs
    assert {sharding.memory_kind for sharding in program.shardings} == {"device"}
    shardings = tuple(replace(sharding, memory_kind=taken) for sharding in program.shardings)
    arrays = tuple(replace(one, memory_kind="pinned_host") for one in snapshot.arrays)
    program = replace(program, shardings=shardings)
    parts = breakdown(replace(snapshot, arrays=arrays, programs=(program,)), program)
    assert parts is not None and [part.in_host for part in parts.arguments] == [taken == "pinned_host"]
    said = str(placed(arrays[0], snapshot))
    assert "pinned_host memory" in said and "on each of its devices" not in said
    assert "on each of its devices" in str(placed(snapshot.arrays[0], snapshot))


@pytest.mark.parametrize("updates", [True, False])
def test_a_gradient_with_respect_to_inputs_updates_nothing(updates: bool) -> None:
    """The last stage of a pipeline returns the gradient of what it gets; a train step returns a new state."""

    def last(w: dict, x: jax.Array, y: jax.Array) -> tuple[dict, jax.Array]:
        def loss(w: dict, x: jax.Array) -> jax.Array:
            return jnp.mean((x + jax.nn.gelu(x @ w["in"]) @ w["out"] - y) ** 2)

        grads, back = jax.grad(loss, argnums=(0, 1))(w, x)
        return jax.tree.map(lambda a, b: a - 0.1 * b, w, grads) if updates else grads, back

    weights = {name: array((128, 128)) for name in ("in", "out")}
    snapshot = inspect(jax.jit(last), weights, array((64, 128), "data"), array((64, 128), "data"))
    uses = {
        sharding.path.partition("/input/")[2]: sharding.use
        for sharding in snapshot.programs[0].shardings
        if sharding.role == "input"
    }
    weight = "weight" if updates else None
    assert uses == {"w/in": weight, "w/out": weight, "x": None, "y": None}


def test_arrays_of_unknown_role_are_no_train_state() -> None:
    snapshot = inspect(jax.jit(lambda w, m, key: (w - m, key)), *(array((8, 8)),) * 3)
    groups = ("params", "opt_state", "other")
    arrays = tuple(replace(one, group=group) for one, group in zip(snapshot.arrays, groups, strict=False))
    assert len(arrays) == 3
    assert state_title(replace(snapshot, arrays=arrays[:2])) == "Train state"
    assert state_title(replace(snapshot, arrays=arrays)) == "Arrays"


@pytest.mark.parametrize("groups", [("cache",) * 3, ("gradient", "other", "other")])
def test_without_a_known_role_all_arrays_count(groups: tuple[Group, ...]) -> None:
    snapshot = inspect(jax.jit(lambda w, m, key: (w - m, key)), *(array((8, 8)),) * 3)
    arrays = tuple(replace(one, group=group) for one, group in zip(snapshot.arrays, groups, strict=False))
    snapshot = replace(snapshot, arrays=arrays)
    assert state_title(snapshot) == "Arrays"
    assert state_totals(snapshot).per_device == 3 * 8 * 8 * 4


def test_a_part_of_repeated_work_is_an_operation_with_flops_and_not_tiny() -> None:
    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.tanh(x @ y)

    (found,) = findings("repeated-work", jax.jit(product), *(array((512, 512)),) * 2)
    assert "most of it in `dot_general`" in found.message
    merged = RepeatedWork(3e9, 8, ("data",), "dot", op_name="jit(f)/transpose(jvp(cholesky))/transpose")
    tiny = replace(merged, flops=9.0)
    snapshot = inspect(jax.jit(product), *(array((512, 512)),) * 2)
    (program,) = snapshot.programs
    work = replace(program.work, repeated=(merged, tiny), flops=8 * 3e9)
    (found,) = [one for one in audit(replace(snapshot, programs=(replace(program, work=work),)))
                if one.code == "repeated-work"]  # fmt: skip
    assert "most of it in `dot`." in found.message and " 9 FLOP" not in found.message


def test_repeated_work_of_several_primitives_has_the_name_of_their_opcode() -> None:
    def optimizer(gradient: jax.Array) -> jax.Array:
        return 0.1 * gradient**3 + 0.9 * gradient * gradient

    (found,) = findings("repeated-work", jax.jit(optimizer), array((512, 512)))
    assert "integer_pow" not in found.message


@pytest.mark.parametrize(("peak", "listed"), [(8 * 2**20, True), (200 * 2**20, False)])
def test_less_than_a_hundredth_of_what_a_device_needs_is_no_finding(peak: int, listed: bool) -> None:
    snapshot = inspect(jax.jit(lambda x: x * 2), array((512, 512)))
    (program,) = snapshot.programs
    program = replace(program, memory=replace(program.memory, peak=peak))
    recorded = replace(snapshot, programs=(program,), most_alive_bytes=2 * 2**20)
    assert ("replicated-array" in [finding.code for finding in audit(recorded)]) == listed


@pytest.mark.parametrize("products", [False, True])
def test_an_operation_is_most_of_repeated_work_with_half_of_it_or_more(products: bool) -> None:
    def step(x: jax.Array, y: jax.Array) -> jax.Array:
        value = x @ y if products else x
        return jnp.maximum(value * y, jnp.sqrt(jnp.abs(y - x)) / 3)

    snapshot = inspect(jax.jit(step), *(array((512, 512)),) * 2)
    ((part,), (finding,)) = snapshot.programs[0].work.repeated, snapshot.findings[:1]
    assert part.operation == ("dot" if products else "several") and finding.code == "repeated-work"
    assert ("most of it" in finding.message) == products == (part.op_name is not None)


@pytest.mark.parametrize(("rows", "devices"), [("data", 2), (("data", "model"), None)])
def test_work_that_parts_of_an_axis_repeat_is_found(rows: str | tuple[str, ...], devices: int | None) -> None:
    """Four devices of `replica` have two blocks of rows, or four."""
    places = np.array(jax.devices()[:8])
    first = Mesh(places.reshape(4, 2), ("replica", "shard"))
    second = Mesh(
        places.reshape(2, 4) if devices else places.reshape(2, 2, 2),
        ("data", "model", "x")[: 2 + (not devices)],
    )
    w = jax.device_put(np.ones((512, 512), np.float32), NamedSharding(first, P(None, "shard")))
    x = jax.device_put(np.ones((64, 512), np.float32), NamedSharding(second, P(rows)))
    (program,) = inspect(jax.jit(lambda w, x: x @ w), w, x).programs
    assert [(part.devices, part.axes) for part in program.work.repeated] == (
        [(devices, ("replica",))] if devices else []
    )


def test_a_permute_inside_of_a_partition_rule_is_not_of_the_partitioner() -> None:
    @custom_partitioning
    def halo(a: jax.Array) -> jax.Array:
        return a + jnp.roll(a, 1, 0)

    def partition(mesh: Mesh, arguments: tuple, result: object) -> tuple:
        place, ring = arguments[0].sharding, [(i, (i + 1) % 8) for i in range(8)]

        def lower(a: jax.Array) -> jax.Array:
            return a + jnp.concatenate([lax.ppermute(a[-1:], "data", ring), a[:-1]])

        return mesh, lower, place, (place,)

    halo.def_partition(partition=partition, sharding_rule="i j -> i j")
    (program,) = inspect(jax.jit(halo), array((64, 32), "data")).programs
    (permute,) = program.collectives
    assert permute.op == "collective-permute" and permute.requested_by in (None, "code")


def test_a_mesh_axis_has_one_share_inside_and_between_slices() -> None:
    sent = (("data", None, 60), ("data", "dcn", 20), ("model", None, 20))
    collectives = [
        Collective(
            "all-reduce", False, f"{axis}.{network}", "main", 1, False, (axis,), 2, 4, size, size,
            network=network,
        )
        for axis, network, size in sent
    ]  # fmt: skip
    said = headline("step", collectives)
    assert ", 80% of it over " in said and Code("data") in said
