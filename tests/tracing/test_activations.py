"""What a step keeps for its backward pass and computes again, against JAX's residuals and two programs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax._src.ad_checkpoint import saved_residuals
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import inspector
from inspector.answers import activations as section
from inspector.answers.section import Table
from inspector.assessment.activations import activations
from inspector.compiled import program_text
from inspector.jax_private.checkpoint_names import checkpoint_names
from inspector.machines import hardware
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Program, Snapshot
from tests.models.language_models import built, small
from tests.paths import OWN_CASES

pytestmark = pytest.mark.close_to_jax

MESH = {"mesh": "4x2", "axes": "data,tensor"}
RULES = "batch=data,heads=tensor,kv_heads=tensor,mlp=tensor"
# Sizes of `SMALL` that the rules shard: batch over 4 devices, heads, key heads and columns of the MLP over 2.
WAYS = {(8, 16, 4, 8): 8, (8, 16, 2, 8): 8, (8, 16, 64): 8, (8, 16, 32): 4}


def train_step(**fields: str) -> Program:
    layout = small("transformer", rules=RULES, **MESH, **fields)
    return partitioned_programs(layout, origins=False, only=("train_step",)).programs[0]


def of_jax(remat: str) -> Counter[int]:
    """The bytes on one device of each array that JAX says it saves of the scanned blocks."""
    model, state, batch = built("transformer", remat=remat, scan="true")
    loss = lambda params: model.apply(state.replace(params=params), batch).sum()  # noqa: E731
    sizes: Counter[int] = Counter()
    for kept, source in saved_residuals(loss, state.params):
        if "output of scan" in source and kept.shape[1:] in WAYS and kept.dtype == "float32":
            sizes[math.prod(kept.shape) * 4 // WAYS[kept.shape[1:]]] += 1
    return sizes


@pytest.mark.parametrize("remat", ["full", "minimal", "save:key_proj+mlpwi_0,offload:out_proj"])
def test_kept_bytes_are_those_of_the_residuals_of_jax(remat: str) -> None:
    """In a scan JAX lists all that the blocks keep, on all devices."""
    residuals = train_step(remat=remat, scan="true").residuals
    assert residuals is not None
    kept: Counter[int] = Counter()
    for activation in residuals.kept:
        if activation.count == 2 and (activation.module or activation.primitive == "carry"):
            kept[activation.bytes] += 1
    assert kept == of_jax(remat)


@pytest.mark.parametrize("scan", ["true", "false"])
def test_flops_again_are_the_difference_of_two_programs(scan: str) -> None:
    without, again = train_step(scan=scan), train_step(scan=scan, remat="full")
    assert without.residuals is not None and again.residuals is not None
    assert without.residuals.flops == 0
    assert again.work is not None and without.work is not None
    products = (again.work.matmul_flops or 0) - (without.work.matmul_flops or 0)
    assert sum(again.residuals.matmul.values()) == products > 0
    assert again.flops_per_device is not None and without.flops_per_device is not None
    assert again.residuals.flops == pytest.approx(again.flops_per_device - without.flops_per_device, rel=0.03)


def test_each_name_has_the_place_of_its_policy_and_the_bytes_of_its_shards() -> None:
    program = train_step(remat="save:key_proj+mlpwi_0,offload:out_proj", scan="true")
    known = activations(snapshot_of(program), program, None)
    assert known is not None and known.has_names and not known.compiled and known.as_asked is None
    rows = {row.label: row for row in known.rows if row.named}
    assert {name: row.place for name, row in rows.items()} == {
        **{"decoder_layer_input": "device", "key_proj": "device", "mlpwi_0": "device", "out_proj": "host"},
        **dict.fromkeys(("query_proj", "value_proj", "context", "mlpwi_1"), "recomputed"),
    }
    sizes = {"key_proj": (8, 16, 2, 8), "mlpwi_0": (8, 16, 64), "out_proj": (8, 16, 32)}
    for name, shape in sizes.items():
        assert (rows[name].count, rows[name].bytes) == (2, 2 * math.prod(shape) * 4 // WAYS[shape])
    assert known.amounts.host == rows["out_proj"].bytes
    products = 2 * 2 * math.prod((8, 16, 64)) * 32 / WAYS[8, 16, 64]  # of two layers
    assert rows["mlpwi_1"].flops == products


def test_rows_of_both_tables_add_up_to_the_sentence() -> None:
    program = train_step(remat="save:key_proj+mlpwi_0,offload:out_proj", scan="true")
    (shown,) = section.sections(snapshot_of(program), None)
    known = activations(snapshot_of(program), program, None)
    assert known is not None and known.amounts.flops is not None
    again, kept = [block for block in shown.blocks if isinstance(block, Table)]
    (flops,) = [place for place, column in enumerate(again.columns) if column.heading == "FLOPs"]
    (size,) = [place for place, column in enumerate(kept.columns) if column.kind == "bytes"]
    assert numbers(again, flops) == pytest.approx(known.amounts.flops, rel=0.02)
    assert numbers(kept, size) == pytest.approx(known.amounts.device + known.amounts.host, rel=0.02)


def numbers(table: Table, column: int) -> float:
    return sum(cell for row in table.rows if isinstance(cell := row[column], (int, float)))


def test_computing_again_takes_a_part_of_the_step() -> None:
    """At least its matrix products at the peak of the chip, and less than the step."""
    chip = hardware.chip("v5e")
    seconds = []
    for remat in ("none", "minimal", "full"):
        program = train_step(embed="256", mlp="1024", seq="512", scan="true", remat=remat)
        known = activations(snapshot_of(program), program, chip)
        assert known is not None and known.seconds is not None and known.step
        assert known.amounts.matmul / chip.peak("f32").flops_per_second <= known.seconds < known.step
        seconds.append(known.seconds)
    assert seconds[0] == 0 < seconds[1] < seconds[2]


def snapshot_of(program: Program) -> Snapshot:
    layout = small("transformer", rules=RULES, **MESH)
    source = inspector.records.snapshot.Source("plan", "plan", "2026-01-01T00:00:00+00:00", {})
    return Snapshot(source, layout.to_json(), layout.mesh(), (), (program,))


# --- Programs of users ------------------------------------------------------------------------------------

AUTO = Mesh(np.array(jax.devices()[:4]), ("data",), axis_types=(AxisType.Auto,))


def loss(policy: Any, w: jax.Array, x: jax.Array, *, scan: bool, prevent_cse: bool = True) -> jax.Array:
    def block(x: jax.Array, w: jax.Array) -> jax.Array:
        up = checkpoint_name(x @ w, "up")
        down = checkpoint_name(jnp.tanh(up) @ w.T, "down")
        return x + jnp.sin(down)

    remat = jax.checkpoint(block, policy=policy, prevent_cse=prevent_cse)
    if scan:
        x, _ = jax.lax.scan(lambda x, w: (remat(x, w), None), x, w)
    else:
        for number in range(w.shape[0]):
            x = remat(x, w[number])
    return (x**2).sum()


def inspected(policy: Any, **options: bool) -> tuple[Snapshot, Program]:
    weights = jax.ShapeDtypeStruct((3, 32, 128), "float32", sharding=NamedSharding(AUTO, P()))
    batch = jax.ShapeDtypeStruct((16, 32), "float32", sharding=NamedSharding(AUTO, P("data")))

    def gradient(w: jax.Array, x: jax.Array) -> Any:
        return jax.grad(lambda w, x: loss(policy, w, x, **options), argnums=(0, 1))(w, x)

    snapshot = inspector.inspect(jax.jit(gradient), weights, batch)
    return snapshot, snapshot.programs[0]


def test_a_compiler_that_follows_the_policy_does_what_was_asked() -> None:
    policies = jax.checkpoint_policies
    snapshot, program = inspected(policies.save_only_these_names("up"), scan=True)
    known = activations(snapshot, program, None)
    assert known is not None and known.compiled and known.as_asked
    places = {row.label: row.place for row in known.rows if row.named}
    assert places["up"] == "device"
    (up,) = (row for row in known.rows if row.label == "up")
    assert (up.count, up.bytes) == (3, 3 * 4 * 128 * 4)  # of 16 rows, a device has 4


def test_activations_inside_of_a_shard_map_are_those_of_the_compiled_program() -> None:
    """XLA puts the names of a `shard_map` before those inside of it only when it inlines the function."""

    def stages(w: jax.Array, x: jax.Array) -> jax.Array:
        def stage(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            x = jax.lax.ppermute(jnp.tanh(x @ w), "data", [(0, 1), (1, 2), (2, 3), (3, 0)])
            return jnp.where(x > 0, x, 0.5 * x), None

        return jax.lax.scan(stage, x, w)[0]

    mapped = jax.shard_map(stages, mesh=AUTO, in_specs=(P(), P("data")), out_specs=P("data"))
    weights = jax.ShapeDtypeStruct((3, 32, 32), "float32", sharding=NamedSharding(AUTO, P()))
    batch = jax.ShapeDtypeStruct((16, 32), "float32", sharding=NamedSharding(AUTO, P("data")))
    gradient = jax.jit(jax.grad(lambda w, x: (mapped(w, x) ** 2).sum(), argnums=(0, 1)))
    snapshot = inspector.inspect(gradient, weights, batch)
    (program,) = snapshot.programs
    known = activations(snapshot, program, None)
    assert known is not None and known.has_names and program.checkpoint_names == ()
    assert known.asked is not None and known.asked.device == known.amounts.device >= 3 * 2 * 4 * 32 * 4
    assert known.as_asked is None and not known.policy and not section.compiler_sentences(known)
    (before, *_), sends = snapshot.partitioned or (), []
    for record in (program, before):
        permutes = [own for own in record.collectives or () if own.op == "collective-permute"]
        sends.append(sorted(own.op_name or "" for own in permutes))
    assert sends[0] == sends[1] and len(sends[0]) == 2


@pytest.mark.parametrize("policy", [True, False])
def test_a_stack_in_bfloat16_is_kept_with_the_bytes_of_its_residuals(policy: bool) -> None:
    """XLA for CPUs computes in float32, in fusions with casts that have no names."""

    def block(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return x + jnp.tanh(x @ w), None

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(jax.checkpoint(block) if policy else block, x, w)[0].astype("float32").sum()

    weights = jax.ShapeDtypeStruct((3, 32, 32), "bfloat16", sharding=NamedSharding(AUTO, P()))
    batch = jax.ShapeDtypeStruct((16, 32), "bfloat16", sharding=NamedSharding(AUTO, P("data")))
    snapshot = inspector.inspect(jax.jit(jax.grad(loss)), weights, batch)
    known = activations(snapshot, snapshot.programs[0], None)
    saved = [kept for kept, source in saved_residuals(loss, weights, batch) if "output of scan" in source]
    stacks = [kept for kept in saved if kept.shape == (3, 16, 32)]
    assert known is not None and known.policy == policy and known.as_asked is (True if policy else None)
    assert known.amounts.device == sum(kept.size * 2 // 4 for kept in stacks) > 0


def test_a_policy_that_has_no_effect_is_named() -> None:
    """Without barriers, XLA computes equal operations once, before it partitions the program."""
    snapshot, program = inspected(None, scan=False, prevent_cse=False)
    known = activations(snapshot, program, None)
    assert known is not None and known.amounts.matmul == 0
    assert known.as_asked is False
    assert {(row.label, row.place, row.asked) for row in known.moved} == {("down", "device", "recomputed")}


def test_products_again_are_those_of_the_code_if_the_compiler_makes_as_many() -> None:
    """XLA for CPUs drops the names of products from which it takes a dimension of size 1."""

    @jax.checkpoint
    def attention(x: jax.Array, w: jax.Array) -> jax.Array:
        query, key = ((x @ w).reshape(*x.shape[:2], 1, 32), x.reshape(*x.shape[:2], 1, 32))
        weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", query, key))
        return x + jnp.tanh(jnp.einsum("bhts,bshd->bthd", weights, key)).reshape(x.shape)

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return (jax.lax.scan(lambda x, w: (attention(x, w), None), x, w)[0] ** 2).sum()

    weights = jax.ShapeDtypeStruct((3, 32, 32), "float32", sharding=NamedSharding(AUTO, P()))
    batch = jax.ShapeDtypeStruct((8, 16, 32), "float32", sharding=NamedSharding(AUTO, P("data")))
    snapshot = inspector.inspect(jax.jit(jax.grad(loss)), weights, batch)
    program = snapshot.programs[0]
    known = activations(snapshot, program, None)
    products = 3 * 2 * (8 // 4) * (16 * 32 * 32 + 2 * 16 * 16 * 32)  # x @ w, and two with 16 × 16 weights
    assert known is not None and known.same_work and known.amounts.matmul == products
    assert program.work is not None
    fewer = replace(program, work=replace(program.work, matmul=program.work.matmul[:0]))
    known = activations(replace(snapshot, programs=(fewer,)), fewer, None)
    assert known is not None and known.amounts.flops is known.as_asked is None


def test_an_offload_without_a_second_memory_is_named() -> None:
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["down"],
        names_which_can_be_offloaded=["up"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    snapshot, program = inspected(policy, scan=True)
    known = activations(snapshot, program, None)
    assert known is not None and known.as_asked is False
    assert [(row.label, row.place, row.asked) for row in known.moved] == [("up", "device", "host")]
    assert known.asked is not None and known.asked.host == 3 * 4 * 128 * 4


def test_names_of_a_traced_function_have_their_policies() -> None:
    policies = jax.checkpoint_policies
    offload = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["down"],
        names_which_can_be_offloaded=["up"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    weights, batch = jax.ShapeDtypeStruct((3, 32, 128), "float32"), jax.ShapeDtypeStruct((16, 32), "float32")
    for scan in (True, False):
        for policy, wanted in (
            (offload, {"up": "offloaded", "down": "saved"}),
            (policies.save_only_these_names("down"), {"up": "recomputed", "down": "saved"}),
            (None, {"up": "recomputed", "down": "recomputed"}),
        ):
            gradient = jax.jit(jax.grad(lambda w, x, p=policy, s=scan: loss(p, w, x, scan=s)))
            names = checkpoint_names(gradient.trace(weights, batch).jaxpr)
            assert {name.name: name.policy for name in names} == wanted
            assert Counter(name.name for name in names for _ in range(name.count)) == dict.fromkeys(wanted, 3)
            assert {name.elements for name in names if name.name == "up"} == {16 * 128}


def test_a_value_on_the_host_needs_no_name() -> None:
    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    gradient = jax.jit(jax.grad(lambda w, x: loss(policy, w, x, scan=True)))
    shapes = jax.ShapeDtypeStruct((3, 32, 128), "float32"), jax.ShapeDtypeStruct((16, 32), "float32")
    unnamed = [name for name in checkpoint_names(gradient.trace(*shapes).jaxpr) if not name.name]
    assert [(name.policy, name.primitive, name.count) for name in unnamed] == [
        ("offloaded", "dot_general", 3)
    ] * 2


def test_each_element_of_a_combined_collective_is_kept() -> None:
    """Two towers with a product over a sharded dimension, whose sums one all-reduce combines."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("tp",), axis_types=(AxisType.Auto,))
    columns, rows = (NamedSharding(mesh, P(*spec)) for spec in ((None, "tp"), ("tp", None)))

    def loss(weights: Any, one: Any, two: Any) -> Any:
        first, second = (side @ weight for side, weight in zip((one, two), weights, strict=True))
        return jnp.sum(jnp.sin(first) * jnp.cos(second))

    weight = jax.ShapeDtypeStruct((64, 32), "float32", sharding=rows)
    side = jax.ShapeDtypeStruct((16, 64), "float32", sharding=columns)
    (program,) = inspector.inspect(jax.jit(jax.grad(loss)), [weight, weight], side, side).programs
    assert program.collectives is not None and program.residuals is not None
    assert [(one.op, one.payload_bytes) for one in program.collectives] == [("all-reduce", 2 * 16 * 32 * 4)]
    sums = [kept for kept in program.residuals.kept if kept.primitive == "dot_general"]
    assert sum(kept.bytes for kept in sums) == 2 * 16 * 32 * 4


def test_a_program_without_a_backward_pass_keeps_nothing() -> None:
    matrix = jnp.ones((8, 8))
    compiled = jax.jit(lambda x: jnp.tanh(x @ matrix)).lower(matrix).compile()
    facts = program_text.read(compiled.as_text(), None)
    assert facts.residuals is not None and facts.residuals.kept == facts.residuals.recomputed == ()


# A loop of three layers of a TPU program as its compiler writes it: the values that the backward pass reads
# are in the memory of the host, S(5), where an asynchronous operation writes those of each iteration.
ON_HOST = (OWN_CASES / "activations_on_host.hlo").read_text()


def test_memory_of_the_host_is_read_from_the_text_of_a_compiler() -> None:
    residuals = program_text.read(ON_HOST, None).residuals
    assert residuals is not None
    (kept,) = residuals.kept
    assert (kept.module, kept.primitive, kept.shape) == ("block", "tanh", "f32[4,32]")
    assert (kept.host, kept.count, kept.bytes) == (True, 3, 3 * 4 * 32 * 4)
    assert [(row.primitive, row.count) for row in residuals.recomputed] == [("cos", 1)]
    assert residuals.by_compiler == 1


# The same of a GPU, shortened: fusions that are asynchronous write and read each iteration, and another one
# computes both the value and the next state.
ON_HOST_OF_GPU = (OWN_CASES / "activations_on_host_gpu.hlo").read_text()


def test_asynchronous_fusions_of_a_gpu_write_and_read_what_is_kept() -> None:
    residuals = program_text.read(ON_HOST_OF_GPU, None).residuals
    assert residuals is not None
    (kept,) = residuals.kept
    assert (kept.primitive, kept.shape, kept.count, kept.bytes) == ("tanh", "f32[4,16]", 3, 3 * 4 * 16 * 4)
    assert kept.host


def test_text_without_names_of_operations_says_nothing() -> None:
    without = "\n".join(line.partition(", metadata=")[0] for line in ON_HOST.splitlines())
    assert program_text.read(without, None).residuals is None
