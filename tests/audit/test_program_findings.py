"""Findings inside of programs, each against what JAX or arithmetic says."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.audit import audit
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Finding, KeptGather, Mesh, MeshAxis, Program, Snapshot, Source


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))


def placed(mesh, shape, *spec, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def of(snapshot: Snapshot, code: str) -> list[Finding]:
    return [finding for finding in snapshot.findings if finding.code == code]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("rows", "columns"), [(1001, 64), (1004, 64), (64, 1001), (1002, 30)])
def test_a_constraint_that_does_not_divide_gives_a_replicated_result(mesh, rows, columns) -> None:
    """jax-ml/jax#26946: the constraint is dropped silently for the result."""
    spec = P("x", None) if rows > columns else P(None, "x")

    def init(key):
        table = jax.random.normal(key, (rows, columns))
        return {"embed": jax.lax.with_sharding_constraint(table, NamedSharding(mesh, spec))}

    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=NamedSharding(mesh, P()))
    try:
        compiled = jax.jit(init).lower(key).compile()
    except ValueError as error:  # JAX 0.12 fails on the sharding that XLA chooses for the key's words
        with pytest.raises(type(error)):
            inspect(init, key)
        return
    snapshot = inspect(init, key)
    replicated = compiled.output_shardings["embed"].is_fully_replicated
    findings = of(snapshot, "uneven-result-gathered")
    assert len(findings) == replicated == (max(rows, columns) % 4 != 0)
    if findings:
        padded = -(-max(rows, columns) // 4) * 4 * min(rows, columns) * 4
        assert findings[0].bytes == padded - padded // 4
        assert findings[0].path == "init/output/embed"


@pytest.mark.nightly
def test_a_slice_that_the_program_asks_for_is_no_finding(mesh) -> None:
    def first(w):
        whole = jax.lax.with_sharding_constraint(w * 2, NamedSharding(mesh, P()))
        return whole[:1000]

    snapshot = inspect(jax.jit(first, out_shardings=NamedSharding(mesh, P())), placed(mesh, (4096, 8), "x"))
    assert of(snapshot, "uneven-result-gathered") == []


def test_a_large_constant_is_found_and_an_argument_is_not(mesh) -> None:
    table = np.random.default_rng(0).normal(size=(256, 256)).astype("float32")
    x = placed(mesh, (8, 256), "x")
    snapshot = inspect(lambda x: x @ table, x)
    (finding,) = of(snapshot, "large-constant")
    assert finding.bytes == table.nbytes
    passed = inspect(lambda x, table: x @ table, x, placed(mesh, table.shape))
    assert of(passed, "large-constant") == []
    small = inspect(lambda x: x @ table[:, :4], x)
    assert of(small, "large-constant") == []


BATCH, LENGTH, HEADS, QUERIES, WIDTH = 8, 256, 2, 8, 64


def decode(kept, q, new, at):
    kept = {
        name: jax.lax.dynamic_update_slice(one, new[:, None], (0, at, 0, 0)) for name, one in kept.items()
    }
    grouped = q.reshape(BATCH, HEADS, QUERIES // HEADS, WIDTH)
    scores = jnp.einsum("bkgh,bskh->bkgs", grouped, kept["k"]) / 8
    weights = jax.nn.softmax(scores.astype("float32")).astype("bfloat16")
    values = jnp.einsum("bkgs,bskh->bkgh", weights, kept["v"])
    return values.reshape(BATCH, QUERIES, WIDTH), kept


@pytest.mark.nightly
def test_a_cache_that_is_gathered_for_each_token_is_found() -> None:
    """apple/axlearn#972: two heads of the cache do not divide, and the heads of q propagate into it."""
    wide = jax.make_mesh((2, 4), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
    cache = placed(wide, (BATCH, LENGTH, HEADS, WIDTH), "data", dtype="bfloat16")
    new = placed(wide, (BATCH, HEADS, WIDTH), "data", dtype="bfloat16")
    at = placed(wide, (), dtype="int32")
    step = jax.jit(decode, donate_argnums=0)
    kept = {"k": cache, "v": cache}
    for axes, count in (("tensor", 2), (None, 0)):
        q = placed(wide, (BATCH, QUERIES, WIDTH), "data", axes, dtype="bfloat16")
        snapshot = inspect(step, kept, q, new, at)
        findings = of(snapshot, "cache-moved")
        held = BATCH * LENGTH * HEADS * WIDTH * 2 // 2
        large = {
            collective.name: collective.wire_bytes_per_device
            for collective in snapshot.programs[0].collectives or ()
            if (collective.payload_bytes or 0) >= held
        }
        assert len(findings) == len(large) == count
        assert {finding.collective: finding.wire_bytes for finding in findings} == large


def test_repeated_work_is_the_flops_of_all_devices_over_those_of_the_program(mesh) -> None:
    w = placed(mesh, (64, 64))
    repeated = inspect(lambda w, x: jnp.tanh(x @ w) @ w, w, placed(mesh, (16, 64)))
    (finding,) = of(repeated, "repeated-work")
    assert finding.ratio == pytest.approx(4.0)
    shared = inspect(lambda w, x: jnp.tanh(x @ w) @ w, w, placed(mesh, (16, 64), "x"))
    assert of(shared, "repeated-work") == []


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("sharded", ["layers", "columns"])
def test_a_stack_of_layers_that_is_gathered_at_once_is_found(mesh, sharded: str) -> None:
    """XLA gathers before the loop only if the dimension of the layers is sharded."""
    layers, width = 8, 256
    spec = P("x", None, None) if sharded == "layers" else P(None, None, "x")
    on = NamedSharding(mesh, P("x", None))

    def step(params, x):
        def layer(x, w):
            whole = jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
            return jax.lax.with_sharding_constraint(jnp.tanh(x @ whole), on), None

        return jax.lax.scan(layer, x, params["stack"])[0]

    shape = (layers, width, width)
    stack = jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))
    snapshot = inspect(step, {"stack": stack}, placed(mesh, (64, width), "x", None))
    findings = of(snapshot, "stack-gathered")
    (program,) = snapshot.programs
    whole = 4 * layers * width * width
    gathers = [collective for collective in program.collectives if collective.op == "all-gather"]
    assert gathers
    at_once = [gather for gather in gathers if gather.payload_bytes == whole]
    assert len(findings) == len(at_once) == (sharded == "layers")
    if findings:
        assert findings[0].bytes == whole - whole // layers
        assert findings[0].collective == at_once[0].name


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(("tokens", "gathered"), [((64, 16), False), ((4096, 512), True)])
def test_a_table_that_is_gathered_for_a_lookup_is_noted(mesh, tokens, gathered: bool) -> None:
    """XLA gathers the table if that is less than gathering what is looked up."""
    rows, width = 4096, 64

    def lookup(params, tokens):
        return jnp.take(params["table"], tokens, axis=0)

    at = placed(mesh, tokens, "x", None, dtype="int32")
    snapshot = inspect(lookup, {"table": placed(mesh, (rows, width), None, "x")}, at)
    gathers = [collective for collective in snapshot.programs[0].collectives if collective.op == "all-gather"]
    whole = [gather for gather in gathers if gather.payload_bytes == rows * width * 4]
    assert bool(whole) == gathered
    assert len(of(snapshot, "table-gathered")) == len(whole)
    replicated = inspect(lookup, {"table": placed(mesh, (rows, width))}, at)
    assert of(replicated, "table-gathered") == []


@pytest.mark.parametrize("mapped", [False, True])
def test_an_input_that_a_shard_map_takes_whole_has_no_fix(mesh, mapped: bool) -> None:
    """With another PartitionSpec, the compiled program gathers it first."""

    def apply(params, x):
        return jnp.tanh(x @ params["w"])

    everywhere, rows = P(), P("x")
    if mapped:
        apply = jax.shard_map(apply, mesh=mesh, in_specs=(everywhere, rows), out_specs=rows)
    x = placed(mesh, (64, 256), "x")
    snapshot = inspect(apply, {"w": placed(mesh, (256, 256))}, x)
    (finding,) = of(snapshot, "replicated-parameter")
    assert (finding.remedy is None) == mapped
    compiled = jax.jit(apply).lower({"w": placed(mesh, (256, 256), "x")}, x).compile()
    assert "all-gather" in compiled.as_text()


@pytest.mark.parametrize("arrays", [("params/w",), ()])
def test_kept_values_have_names_only_if_all_of_them_do(arrays: tuple[str, ...]) -> None:
    """Of two kept gathers, one can be of an activation."""
    gathers = KeptGather("a", 2**30, ("params/w",)), KeptGather("b", 2**30, arrays)
    mesh = Mesh((MeshAxis("x", 2),), devices=(0, 1))
    program = Program("step", stage="compiled", kept_gathers=gathers)
    snapshot = Snapshot(Source("hlo", None, "2026-01-01T00:00:00Z", {}), None, mesh, (), programs=(program,))
    (finding,) = of(replace(snapshot, findings=audit(snapshot)), "gathered-value-kept")
    assert ("params/w" in finding.message) == bool(arrays)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("form", ["scan", "unrolled", "checkpoint"])
def test_gathered_weights_that_wait_for_the_backward_pass_are_noted(mesh, form: str) -> None:
    """With `jax.checkpoint`, temporaries of a scan fall by what the finding names."""
    layers, width, rows = 6, 256, 32
    everywhere = NamedSharding(mesh, P())

    def layer(x, w):
        return jnp.tanh(x @ jax.lax.with_sharding_constraint(w, everywhere)), None

    def step(checkpointed, stack, x):
        run = jax.checkpoint(layer) if checkpointed else layer

        def loss(stack):
            if form != "unrolled":
                return jnp.sum(jax.lax.scan(run, x, stack)[0] ** 2)
            value = x
            for number in range(layers):
                value, _ = run(value, stack[number])
            return jnp.sum(value**2)

        return stack - 0.1 * jax.grad(loss)(stack)

    def with_checkpoint(on: bool):
        return lambda stack, x: step(on, stack, x)

    arguments = placed(mesh, (layers, width, width), None, "x"), placed(mesh, (rows, width), "x")
    snapshot = inspect(with_checkpoint(form == "checkpoint"), *arguments)
    findings = of(snapshot, "gathered-value-kept")
    if form == "checkpoint":
        assert findings == []
        return
    weight = 4 * width * width
    # No value before the first layer needs a gradient, so an unrolled program does not keep its weight.
    kept = layers if form == "scan" else layers - 1
    (finding,) = findings
    assert {path for gather in snapshot.programs[0].kept_gathers for path in gather.arrays} == {
        "<lambda>/input/stack"
    }
    # Whether a device needs less memory at its peak without them is not known.
    assert finding.bytes is None and finding.remedy is None
    assert sum(kept_gather.bytes for kept_gather in snapshot.programs[0].kept_gathers) == kept * weight
    temporaries = [
        jax.jit(with_checkpoint(on)).lower(*arguments).compile().memory_analysis().temp_size_in_bytes
        for on in (False, True)
    ]
    if form == "scan":  # which also keeps up to three activations of each layer
        activations = 3 * layers * 4 * width * rows // mesh.size
        assert (kept - 1) * weight <= temporaries[0] - temporaries[1] <= kept * weight + activations
