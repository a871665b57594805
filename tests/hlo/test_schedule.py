"""The compiler's schedule: what is kept of it, what waits for what, and how often it runs."""

from __future__ import annotations

import re

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.schedule import schedule
from inspector.records.snapshot import Schedule, ScheduledOperation

# As the TPU compiler writes it: a loop with an asynchronous all-gather in fusions, a copy, and estimates.
TPU = """HloModule m, is_scheduled=true, num_partitions=4
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
begin {
  p.0 = bf16[16,8] parameter(0)
  g.0 = bf16[64,8] all-gather(p.0), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}, \
use_global_device_ids=true, frontend_attributes={chain_id="1"}
  ROOT c.0 = (bf16[16,8], bf16[64,8]) custom-call(g.0), custom_call_target="AsyncCollectiveStart"
}
carry {
  p.1 = bf16[16,8] parameter(0)
  a.1 = f32[32,64] parameter(1)
  b.1 = f32[64,8] parameter(2)
  g.1 = bf16[64,8] all-gather(p.1), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}, \
use_global_device_ids=true, frontend_attributes={chain_id="1"}
  ROOT d.1 = f32[32,8] dot(a.1, b.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
end {
  p.2 = bf16[16,8] parameter(0)
  g.2 = bf16[64,8] all-gather(p.2), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}, \
use_global_device_ids=true, frontend_attributes={chain_id="1"}
  ROOT c.2 = bf16[64,8] custom-call(p.2, g.2), custom_call_target="AsyncCollectiveDone"
}
body {
  s = (s32[], bf16[16,8], f32[32,64], f32[64,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  p = bf16[16,8] get-tuple-element(s), index=1
  a = f32[32,64] get-tuple-element(s), index=2
  b = f32[64,8] get-tuple-element(s), index=3
  start = (bf16[16,8], bf16[64,8]) fusion(p), kind=kCustom, calls=begin
  product = f32[32,8] fusion(p, a, b), kind=kOutput, calls=carry, \
backend_config={"window_config":{"estimated_cycles":"1500"}}
  moved = (bf16[16,8], bf16[16,8], u32[]) copy-start(p)
  done = bf16[64,8] fusion(p), kind=kCustom, calls=end
  there = bf16[16,8] copy-done(moved)
  ROOT r = (s32[], bf16[16,8], f32[32,64], f32[64,8]) tuple(next, there, a, b)
}
test {
  s = (s32[], bf16[16,8], f32[32,64], f32[64,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(6)
  ROOT less = pred[] compare(i, limit), direction=LT
}
ENTRY main {
  zero = s32[] constant(0)
  p = bf16[16,8] parameter(0)
  a = f32[32,64] parameter(1)
  b = f32[64,8] parameter(2)
  r = f32[32,64] all-reduce(a), channel_id=1, replica_groups={{0,1},{2,3}}, \
use_global_device_ids=true, to_apply=add
  t = (s32[], bf16[16,8], f32[32,64], f32[64,8]) tuple(zero, p, r, b)
  ROOT w = (s32[], bf16[16,8], f32[32,64], f32[64,8]) while(t), condition=test, body=body
}
"""


def read(text: str) -> tuple[Schedule | None, Analysis]:
    (module,) = hlo.parser.parse(text)
    analysis = Analysis(module)
    return schedule(analysis, hlo.collectives.collectives(module, None, analysis)), analysis


def operations(schedule: Schedule | None, name: str) -> dict[str, ScheduledOperation]:
    assert schedule is not None
    (computation,) = [
        scheduled_computation
        for scheduled_computation in schedule.computations
        if scheduled_computation.name == name
    ]
    return {operation.name: operation for operation in computation.operations}


def test_a_tpu_loop():
    schedule, _ = read(TPU)
    main, body = operations(schedule, "main"), operations(schedule, "body")
    assert list(main) == ["r", "w"]
    assert (main["w"].runs, main["w"].times) == (("body",), 6)
    assert list(body) == ["start", "product", "moved", "done", "there"]
    assert main["r"].collective == 1
    assert (body["start"].begins, body["start"].collective) == (True, 0)
    assert (body["product"].cycles, body["product"].collective) == (1500, None)
    assert body["product"].flops == 2 * 32 * 64 * 8
    assert (body["done"].awaits, body["there"].awaits) == (0, 2)
    assert body["moved"].bytes == 2 * 16 * 8 * 2


def test_a_text_without_a_schedule_has_none():
    assert read(TPU.replace(", is_scheduled=true", ""))[0] is None
    assert read(TPU[: TPU.rindex("ROOT")])[0] is None


@pytest.mark.parametrize("target", ["missing", "main"])
def test_a_done_without_a_start_waits_for_nothing(target):
    lines = {"missing": "d = bf16[16,8] copy-done(p)", "main": "d = bf16[16,8] copy-done(q)"}
    text = TPU.replace("  r = f32", f"  {lines[target]}\n  r = f32")
    assert operations(read(text)[0], "main")["d"].awaits is None


# A transfer between slices, and copies to and from the memory of the host, S(5).
TRANSFERS = """HloModule m, is_scheduled=true, num_partitions=4
ENTRY main {
  p = f32[64,8] parameter(0)
  t = token[] after-all()
  s = (f32[64,8], u32[], token[]) send(p, t), channel_id=2, is_host_transfer=true, \
frontend_attributes={_xla_host_transfer_rendezvous="all-reduce.1_0",_xla_megascale_target="{1,2}x{0:3}",\
_xla_megascale_transfer_type="ALL_REDUCE"}
  r = (f32[64,8], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true, \
frontend_attributes={_xla_host_transfer_rendezvous="all-reduce.1_0",_xla_megascale_target="{1,2}x{0:3}",\
_xla_megascale_transfer_type="ALL_REDUCE"}
  out = (f32[64,8]{1,0:S(5)}, f32[64,8]{1,0}, u32[]) copy-start(p)
  sd = token[] send-done(s), channel_id=2, is_host_transfer=true
  rd = (f32[64,8], token[]) recv-done(r), channel_id=1, is_host_transfer=true
  there = f32[64,8]{1,0:S(5)} copy-done(out)
  near = (f32[64,8]{1,0:S(1)}, f32[64,8]{1,0}, u32[]) copy-start(p)
  here = f32[64,8]{1,0:S(1)} copy-done(near)
  ROOT g = f32[64,8] get-tuple-element(rd), index=0
}
"""


def test_transfers_between_slices_and_to_the_host():
    main = operations(read(TRANSFERS)[0], "main")
    assert list(main) == ["s", "out", "sd", "rd", "there", "near", "here"]
    assert (main["s"].begins, main["s"].collective) == (True, 0)
    assert main["sd"].awaits == main["rd"].awaits == 0
    assert (main["out"].host, main["near"].host) == (True, None)
    assert main["there"].awaits == 1


def test_flops_of_splash_attention():
    call = (
        "m = s8[1,4,4] parameter(1)  q = bf16[6,32,2048,256] parameter(0)  "
        "k = bf16[6,32,2048,256] parameter(2)  ROOT splash_mha_fwd.1 = bf16[6,32,2048,256] "
        'custom-call(m, m, q, k, k), custom_call_target="tpu_custom_call"'
    )
    text = f"HloModule m, is_scheduled=true\nENTRY main {{ {call} }}\n"
    (kernel,) = operations(read(text)[0], "main").values()
    # Two products, of which a causal mask with 4 × 4 blocks leaves 10 of 16.
    assert kernel.flops == 2 * 2 * 6 * 32 * 2048 * 2048 * 256 * 10 / 16
    assert kernel.dtype == "bf16" and kernel.head == 256


def test_flops_and_bytes_of_all_operations_add_up_to_those_of_the_program():
    mesh = Mesh(jax.devices()[:4], ("data",))
    x = jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    w = jax.ShapeDtypeStruct((5, 32, 32), jnp.float32, sharding=NamedSharding(mesh, P(None, "data")))

    def loss(w, x):
        return jnp.sum(jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0])

    text = jax.jit(jax.grad(loss)).lower(w, x).compile().as_text()
    schedule, analysis = read(text)
    assert schedule is not None
    work = hlo.work.work(analysis.module, analysis)
    times = {name: run.count for name, run in analysis.runs.items()}
    every = [
        (times[computation.name], operation)
        for computation in schedule.computations
        for operation in computation.operations
    ]
    flops = sum(count * (scheduled_operation.flops or 0) for count, scheduled_operation in every)
    assert flops == sum(one.flops for one in work.matmul) > 0
    # The condition of a loop is not part of the schedule. It reads a few scalars.
    moved = sum(count * (scheduled_operation.bytes or 0) for count, scheduled_operation in every)
    assert work.bytes_accessed * 0.98 <= moved <= work.bytes_accessed


def test_operations_have_those_whose_results_they_read() -> None:
    schedule, _ = read(TPU)
    assert schedule is not None
    by_name = {
        operation.name: operation
        for computation in schedule.computations
        for operation in computation.operations
    }
    assert [operation.name for operation in schedule.by_name["main"].operations] == ["r", "w"]
    assert by_name["w"].operands == (0,) and by_name["r"].operands == ()
    names = [operation.name for operation in schedule.by_name["body"].operations]
    assert names == ["start", "product", "moved", "done", "there"]
    # The state has the copy of the previous iteration. Other operands of the product do not change.
    assert {name: by_name[name].operands for name in names} == {
        **{"start": (), "product": (), "moved": (), "done": ()},
        "there": (names.index("moved"),),
    }
    assert {name: by_name[name].carried for name in names} == {
        **dict.fromkeys(("start", "product", "moved", "done"), (names.index("there"),)),
        "there": None,
    }


def test_a_loop_passes_on_what_it_does_not_change() -> None:
    text = (
        TPU.replace("  ROOT w = (s32", "  w = (s32").rstrip("}\n")
        + """
  changed = bf16[16,8] get-tuple-element(w), index=1
  kept = f32[32,64] get-tuple-element(w), index=2
  late = bf16[16,8] negate(changed)
  ROOT early = f32[32,64] negate(kept)
}
"""
    )
    schedule, _ = read(text)
    assert schedule is not None
    reads = {operation.name: operation.operands for operation in schedule.by_name["main"].operations}
    assert reads == {"r": (), "w": (0,), "late": (1,), "early": (0,)}


def test_what_a_schedule_reads_is_what_the_text_of_a_compiled_program_says() -> None:
    mesh = Mesh(jax.devices()[:4], ("data",))

    def step(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jnp.sin(x @ w)
        return (y @ w).sum(axis=0), jnp.cumsum(y, axis=1)

    given = (
        jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("data"))),
        jax.ShapeDtypeStruct((32, 32), jnp.float32, sharding=NamedSharding(mesh, P())),
    )
    text = jax.jit(step).lower(*given).compile().as_text()
    schedule, _ = read(text)
    assert schedule is not None
    # Of each line of the entry, the names of its operands, through those that the schedule leaves out.
    lines = dict(
        re.findall(r"^ +(?:ROOT )?%?([\w.-]+) = [^=]*?[\w-]+\(([^)]*)\)", text[text.index("ENTRY") :], re.M)
    )
    entry = schedule.by_name[schedule.entry].operations
    places = {operation.name: place for place, operation in enumerate(entry)}

    def sources(name: str) -> set[int]:
        if name in places:
            return {places[name]}
        return {place for inner in re.findall(r"%([\w.-]+)", lines.get(name, "")) for place in sources(inner)}

    assert len(entry) > 2
    for operation in entry:
        operands = re.findall(r"%([\w.-]+)", lines[operation.name])
        assert set(operation.operands or ()) == {place for name in operands for place in sources(name)}
