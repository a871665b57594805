"""Counts in compiled programs match XLA's parsed objects, and executions match loop bounds."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import hlo
from inspector.compiled import program_text
from inspector.hlo.op_name import parse_op_name
from inspector.records.collectives import OPS
from inspector.records.snapshot import Collective
from inspector.sharding.traffic import traffic
from inspector.tracing.leaves import mesh_record

pytestmark = pytest.mark.close_to_jax

DEVICES = np.array(jax.devices()[:8])
GRID = Mesh(DEVICES.reshape(2, 4), ("data", "model"))


def compiled(function: Callable[..., Any], *arguments: jax.ShapeDtypeStruct) -> Any:
    return jax.jit(function).lower(*arguments).compile()


def sharded(shape: tuple[int, ...], *spec: Any, mesh: Mesh = GRID) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def held(value: jax.Array, *spec: Any) -> jax.Array:
    return lax.with_sharding_constraint(value, NamedSharding(GRID, P(*spec)))


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    """Compute one layer whose weight is sharded by columns, and gather its output."""
    return held(jnp.tanh(x @ w), "data", None)


def loss_of_layers(x: jax.Array, ws: jax.Array) -> jax.Array:
    return jnp.sum(lax.scan(lambda c, w: (layer(c, w), None), x, ws)[0] ** 2)


X = sharded((64, 128), "data", None)
W = sharded((128, 128), None, "model")


def weights(*leading: int) -> jax.ShapeDtypeStruct:
    return sharded((*leading, 128, 128), *(None for _ in leading), None, "model")


def test_a_loop_without_a_trip_count_has_counts_of_one_iteration() -> None:
    """The same layers in a loop of 5 iterations run 5 times what one iteration of an unknown number does."""

    def until(x: jax.Array, ws: jax.Array, limit: Any) -> jax.Array:
        def body(state: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            return state[0] + 1, lax.scan(lambda c, w: (layer(c, w), None), state[1], ws)[0]

        return lax.while_loop(lambda state: state[0] < limit, body, (0, x))[1]

    mesh = mesh_record(GRID)
    known = compiled(partial(until, limit=5), X, weights(3))
    limit = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(GRID, P()))
    (module,) = hlo.parser.parse(known.as_text())
    counted = hlo.collectives.collectives(module, mesh)
    (module,) = hlo.parser.parse(compiled(until, X, weights(3), limit).as_text())
    unknown = hlo.collectives.collectives(module, mesh)
    inside = [collective for collective in unknown if collective.executions is None]
    assert inside and all(collective.executions_per_iteration == 3 for collective in inside)
    assert {collective.executions for collective in counted} == {15}
    assert all(collective.executions_per_iteration is None for collective in counted)
    (row,) = traffic(inside)
    assert row.wire_bytes_per_device is None
    assert 5 * row.wire_bytes_per_iteration == sum(
        collective.executions * collective.wire_bytes_per_device for collective in counted
    )


def executed(collectives: tuple[Collective, ...]) -> Counter[tuple]:
    """Return the executions of each kind of collective by operation, axes and bytes."""
    total: Counter[tuple] = Counter()
    for c in collectives:
        kind = (c.op, c.mesh_axes, c.group_size, c.groups, c.payload_bytes, c.wire_bytes_per_device)
        total[kind] += c.executions
    return total


def times(count: int, total: Counter[tuple]) -> Counter[tuple]:
    return Counter({kind: count * number for kind, number in total.items()})


def collectives_of(executable: Any, mesh: Mesh) -> tuple[Collective, ...]:
    collectives = program_text.read(executable.as_text(), mesh_record(mesh)).collectives
    assert collectives is not None
    return collectives


def of(function: Callable[..., Any], *arguments: jax.ShapeDtypeStruct) -> tuple[Collective, ...]:
    return collectives_of(compiled(function, *arguments), GRID)


@pytest.mark.parametrize("count", [2, 12])
def test_scan_over_layers_multiplies_executions(count: int) -> None:
    single = executed(of(layer, X, W))
    assert single
    scanned = of(lambda x, ws: lax.scan(lambda c, w: (layer(c, w), None), x, ws)[0], X, weights(count))
    assert executed(scanned) == times(count, single)
    assert {c.executions for c in scanned} == {count}


def test_nested_scans() -> None:
    def two_deep(x: jax.Array, ws: jax.Array) -> jax.Array:
        def outer(carry: jax.Array, group: jax.Array) -> tuple[jax.Array, None]:
            return lax.scan(lambda c, w: (layer(c, w), None), carry, group)[0], None

        return lax.scan(outer, x, ws)[0]

    scanned = of(two_deep, X, weights(3, 5))
    assert executed(scanned) == times(15, executed(of(layer, X, W)))


def test_trip_count_from_the_condition() -> None:
    """Remove the printed trip counts from the text of the same programs."""
    grid = mesh_record(GRID)
    for function in (loss_of_layers, jax.grad(loss_of_layers, argnums=(0, 1))):
        text = compiled(function, X, weights(12)).as_text()
        assert "known_trip_count" in text
        (printed,) = hlo.parser.parse(text)
        (worked_out,) = hlo.parser.parse(text.replace("known_trip_count", "hidden"))
        assert hlo.collectives.collectives(worked_out, grid) == hlo.collectives.collectives(printed, grid)
        assert {c.executions for c in hlo.collectives.collectives(printed, grid)} <= {1, 12}


def test_loop_with_dynamic_limit_is_unknown() -> None:
    end = jax.ShapeDtypeStruct((), jnp.int32)
    looped = of(lambda n, x, w: lax.fori_loop(0, n, lambda _, c: layer(c, w), x), end, X, W)
    inside = [c for c in looped if c.op == "all-gather"]
    assert inside and {c.executions for c in inside} == {None}


def test_branch_in_a_scan() -> None:
    def stepped(x: jax.Array, ws: jax.Array) -> jax.Array:
        def step(carry: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            def plain() -> jax.Array:
                return held(carry * 2, "data", None)

            return lax.cond(jnp.sum(w) > 0, lambda: layer(carry, w), plain), None

        return lax.scan(step, x, ws)[0]

    collectives = of(stepped, X, weights(12))
    gathers = [c for c in collectives if c.op == "all-gather"]
    assert gathers and {(c.executions, c.conditional) for c in gathers} == {(12, True)}
    # Each iteration computes the condition of the branch.
    assert all(not c.conditional for c in collectives if c.op == "all-reduce")


ROWS, COLUMNS = 8, 16  # of one device's block, in float32


def psum(x: jax.Array) -> jax.Array:
    return lax.psum(x, "model")


def psum_of_all(x: jax.Array) -> jax.Array:
    return lax.psum(x, ("data", "model"))


def all_gather(x: jax.Array) -> jax.Array:
    return lax.all_gather(x, "data")


def psum_scatter(x: jax.Array) -> jax.Array:
    return lax.psum_scatter(x, "model", scatter_dimension=0, tiled=True)


def all_to_all(x: jax.Array) -> jax.Array:
    return lax.all_to_all(x, "model", split_axis=0, concat_axis=1, tiled=True)


def shift(x: jax.Array) -> jax.Array:
    return lax.ppermute(x, "model", [(n, (n + 1) % 4) for n in range(4)])


def half_shift(x: jax.Array) -> jax.Array:
    return lax.ppermute(x, "data", [(0, 1)])


BLOCK = ROWS * COLUMNS * 4  # bytes
KINDS = [
    (psum, "all-reduce", ("model",), BLOCK, 2 * BLOCK * 3 // 4),
    (psum_of_all, "all-reduce", ("data", "model"), BLOCK, 2 * BLOCK * 7 // 8),
    (all_gather, "all-gather", ("data",), 2 * BLOCK, BLOCK),
    (psum_scatter, "reduce-scatter", ("model",), BLOCK, BLOCK * 3 // 4),
    (all_to_all, "all-to-all", ("model",), BLOCK, BLOCK * 3 // 4),
    (shift, "collective-permute", ("model",), BLOCK, BLOCK),
    (half_shift, "collective-permute", ("data",), BLOCK, BLOCK),
]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("function", "op", "axes", "payload", "wire"), KINDS)
def test_collective_in_shard_map(
    function: Callable[[jax.Array], jax.Array],
    op: str,
    axes: tuple[str, ...],
    payload: int,
    wire: int,
) -> None:
    spec = P("data", "model")
    mapped = jax.shard_map(function, mesh=GRID, in_specs=spec, out_specs=spec, check_vma=False)
    whole = sharded((2 * ROWS, 4 * COLUMNS), "data", "model")
    if function is all_gather:  # one dimension more
        spec_out = P(None, "data", "model")
        mapped = jax.shard_map(function, mesh=GRID, in_specs=spec, out_specs=spec_out, check_vma=False)
    (collective,) = of(mapped, whole)
    assert (collective.op, collective.mesh_axes) == (op, axes)
    assert (collective.payload_bytes, collective.wire_bytes_per_device) == (payload, wire)
    assert collective.executions == 1 and not collective.conditional
    assert re.fullmatch(r"test_compiled\.py:\d+", collective.source)
    line = int(collective.source.partition(":")[2])
    assert function.__code__.co_firstlineno < line <= function.__code__.co_firstlineno + 2
    assert collective.spmd_generated is None


def test_spmd_generated_collectives_are_marked() -> None:
    executable = compiled(
        lambda x, w: x @ w, sharded((64, 128), None, "model"), sharded((128, 64), "model", None)
    )
    (reduce,) = collectives_of(executable, GRID)
    printed = "is_spmd_generated" in executable.as_text()
    assert reduce.spmd_generated == (True if printed else None)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[1:4], ids=str)
def test_axes_of_a_permuted_mesh(order: tuple[int, ...]) -> None:
    """A psum over any axes runs along exactly these, also on a mesh with permuted devices."""
    devices = DEVICES.reshape(2, 2, 2).transpose(order)[:, ::-1].reshape(2, 1, 2, 2)
    mesh = Mesh(devices, ("a", "one", "b", "c"))
    whole = sharded((2, 4, 4), "a", "b", "c", mesh=mesh)
    for count in (1, 2, 3):
        for axes in itertools.combinations("abc", count):
            function = jax.shard_map(
                partial(lax.psum, axis_name=(*axes, "one")), mesh=mesh,
                in_specs=P("a", "b", "c"), out_specs=P("a", "b", "c"), check_vma=False,
            )  # fmt: skip
            (reduce,) = collectives_of(compiled(function, whole), mesh)
            assert reduce.mesh_axes == axes
            assert (reduce.group_size, reduce.groups) == (2**count, 2 ** (3 - count))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]] = {
    "a layer": (layer, (X, W)),
    "the gradient of a scan": (jax.grad(loss_of_layers, argnums=(0, 1)), (X, weights(12))),
    "a sharded sort": (partial(jnp.sort, axis=0), (X,)),
    "random numbers": (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), (X,)),
    "a transpose": (lambda x: held(x.T, "data", "model"), (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_instruction_counts_match_xla(name: str) -> None:
    function, arguments = PROGRAMS[name]
    executable = compiled(function, *arguments)
    (theirs,) = executable.runtime_executable().hlo_modules()
    (ours,) = hlo.parser.parse(executable.as_text())
    expected = {
        computation.name: Counter(
            re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", str(i.opcode).removeprefix("HloOpcode.k")).lower()
            for i in computation.instructions()
        )
        for computation in theirs.computations()
    }
    counters = {c.name: Counter(i.opcode for i in c.instructions) for c in ours.computations}
    assert counters.keys() == expected.keys()
    for computation, opcodes in expected.items():
        assert sum(counters[computation].values()) == sum(opcodes.values())
        for op in (*OPS, "while", "conditional", "fusion", "call", "parameter", "tuple"):
            assert counters[computation][op] == opcodes[op], (computation, op)
    names = {c.name: {i.name for i in c.instructions} for c in ours.computations}
    for computation in theirs.computations():
        assert names[computation.name] == {i.name for i in computation.instructions()}
    # Each instruction is one collective, also inside called computations.
    counted = Counter(c.op for c in collectives_of(executable, GRID))
    assert counted == Counter(
        {op: n for op in OPS if (n := sum(opcodes[op] for opcodes in expected.values()))}
    )


def test_a_merged_all_reduce_has_the_label_of_its_largest_part() -> None:
    """Three gradients are summed by one instruction; most of its bytes are those of `wide`."""

    def step(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        def loss(params: dict[str, jax.Array]) -> jax.Array:
            with jax.named_scope("first"):
                x1 = jnp.tanh(x @ params["first"])
            with jax.named_scope("wide"):
                x2 = jnp.tanh(x1 @ params["wide"])
            with jax.named_scope("last"):
                return jnp.sum(x2 @ params["last"])

        return jax.grad(loss)(params)

    sizes = {"first": (8, 64), "wide": (64, 1024), "last": (1024, 4)}
    params = {name: sharded(shape) for name, shape in sizes.items()}
    (module,) = hlo.parser.parse(compiled(step, params, sharded((64, 8), "data")).as_text())
    merged = [
        collective
        for collective in hlo.collectives.collectives(module, mesh_record(GRID))
        if collective.op == "all-reduce"
    ]
    largest = max(merged, key=lambda collective: collective.payload_bytes)
    assert largest.payload_bytes >= 64 * 1024 * 4
    name = parse_op_name(largest.op_name)[0]
    assert "wide" in name.module or "wide" in largest.op_name.split(":")[0]
