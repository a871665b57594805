"""A Snapshot in which every field of every record has a value, so that a test can damage each of them."""

from __future__ import annotations

import dataclasses

from inspector import layout as layouts
from inspector.records.snapshot import (
    Array,
    ArrayFacts,
    Box,
    Change,
    Collective,
    Conflict,
    ConflictSide,
    Donation,
    Effects,
    Finding,
    GroupUse,
    KeptGather,
    KernelWork,
    LargeConstant,
    LayoutCost,
    LiveBytes,
    LiveValue,
    MatmulFlops,
    Memory,
    MemoryUse,
    Mesh,
    OperandType,
    OperationTime,
    Origin,
    Prediction,
    Program,
    ProgramArray,
    PropagationStep,
    Reshard,
    ReshardedArrays,
    ScheduledOperation,
    Seconds,
    Shard,
    ShardingChoice,
    ShardingError,
    ShardMap,
    Snapshot,
    Source,
    Timeit,
    Trace,
    UnevenGather,
    UnusedDonation,
    Work,
)
from tests.figures import samples
from tests.prediction.schedules import schedule

MESH = dataclasses.replace(
    samples.mesh(processes=2, data=2, model=4),
    device_kind="TPU v5e",
    topology=(2, 4),
    wraps=(False, False),
    coordinates=tuple((n // 4, n % 4) for n in range(8)),
    cores=(0,) * 8,
    device_order="row-major",
    split=False,
)
STAGES = dataclasses.replace(samples.mesh(stage=4), slice_index=(0, 0, 1, 1))
ORIGIN = Origin(
    "model",
    "params/DotReluDot_0/Dense_0/kernel",
    "hidden → model",
    (PropagationStep("dot_general", "forward", "jit(f)/dot", "model.py:31"),),
)

SPEC = (("data",), ("model",))


def _collective(op: str, **changes: object) -> Collective:
    name = f"{op}.1"
    collective = Collective(
        op=op, asynchronous=True, name=name, computation="main", executions=3, conditional=False,
        mesh_axes=("model",), group_size=4, groups=2, payload_bytes=4096, wire_bytes_per_device=3072,
        op_name="jit(train_step)/jvp(Model)/DotReluDot_0/dot_general", source="model.py:31",
        spmd_generated=True, arrays=("params/DotReluDot_0/Dense_0/kernel",), origins=(ORIGIN,),
        network="dcn",
    )  # fmt: skip
    return dataclasses.replace(collective, **changes)  # type: ignore[arg-type]


COLLECTIVES = (
    _collective("all-reduce", mesh_axes=("data",), group_size=2, groups=4, network=None),
    _collective("all-gather", executions=None, conditional=True),
    _collective("reduce-scatter", mesh_axes=("data", "model"), group_size=8, groups=1),
    _collective("all-to-all", mesh_axes=None, device_groups=((0, 1, 2, 3), (4, 5, 6, 7))),
    _collective("collective-permute", group_size=None, groups=None, source_target_pairs=((0, 1), (1, 0))),
    _collective(
        "all-gather",
        name="all-gather.2",
        mesh_axes=None,
        axis_parts=("model:(2)2",),
        group_size=2,
        groups=4,
        executions=None,
        executions_per_iteration=2,
        written_groups="[4,2]<=[8]",
    ),
)
MEMORY_USE = MemoryUse(
    9,
    (0, 3, 8),
    ("forward", "backward", "optimizer"),
    (GroupUse("params", (64, 64, 64)), GroupUse("temporary", (0, 128, 32))),
    1,
    (LiveValue("fusion.1", "temporary", 128, 8, "bf16[8,8]", "loss", "jit(f)/dot", "m.py:3"),),
    16,
)
SCHEDULE = schedule(
    ScheduledOperation("fusion.1", "fusion", cycles=900, bytes=4096),
    ScheduledOperation("all-reduce.1", "all-reduce-start", collective=0, begins=True),
    ScheduledOperation("dot.1", "convolution", flops=1e9, dtype="bf16", bytes=64),
    ScheduledOperation("all-reduce-done.1", "all-reduce-done", awaits=1),
    ScheduledOperation("copy.1", "copy-start", bytes=512, host=True, begins=True),
    ScheduledOperation("while.1", "while", runs=("body",), times=4),
    body=(
        ScheduledOperation(
            "fusion.2",
            "fusion",
            cycles=100,
            op_name="jit(train_step)/transpose(jvp(Model))/DotReluDot_0/dot",
            source="model.py:7",
        ),
        ScheduledOperation("all-gather.1", "all-gather", collective=1),
    ),
)


def _program(name: str) -> Program:
    side = ConflictSide("operand 0", (8, 8), "f32", SPEC, (None, ("model",)), (ORIGIN,))
    choice = ShardingChoice("out_sharding=P('data', None)", (("data",), None), COLLECTIVES[:1])
    return Program(
        name,
        flops_per_device=1e9,
        memory=Memory(4096, 2048, 1024, 512, 256, 8192, 16 * 1024**3, 128),
        collectives=COLLECTIVES,
        seconds=Seconds(0.05, 0.1, 0.2, (0.01, 0.012, 0.011), Timeit(0.011, 0.001, 7, 10)),
        losses=(2.0, 1.5, None),
        shardings=(
            ProgramArray("input", "params/DotReluDot_0/W2", SPEC, (None, None), False),
            ProgramArray("input", "batch/x", SPEC, SPEC, True, use="data", reused=True),
            ProgramArray("output", "loss", None, (), None, used=False),
        ),
        work=Work(
            2e9,
            (MatmulFlops("bf16", 1.5e9),),
            1e8,
            ("tpu_custom_call",),
            12,
            3e7,
            9e7,
            5,
            3e7,
            KernelWork(1e9, 8e8),
        ),
        ideal=Work(1.6e10, (MatmulFlops("bf16", 1.2e10),), 8e8),
        trace=Trace(3, 0.03, (OperationTime("dot", 24, 0.1), OperationTime("all-reduce", 24, 0.05))),
        stage="compiled",
        prediction=Prediction(0.01, 0.009, 0.012, "v5e", 0.008, {"data": 0.001}),
        schedule=SCHEDULE,
        memory_use=MEMORY_USE,
        donation=Donation(64, (UnusedDonation("batch/x", 64, "no output has its size"),)),
        large_constants=(LargeConstant("constant.1", "f32[128,256]", 131072, "m.py:3"),),
        uneven_gathers=(UnevenGather("loss", "all-gather.1", 0, 10, 4, 64, "m.py:3"),),
        kept_gathers=(KeptGather("all-gather.1", 4096, ("params/DotReluDot_0/W2",), "m.py:3"),),
        devices=8,
        conflicts=(Conflict("dot_general", (side, side), ("all-reduce.1",), "jit(f)/dot", "m.py:3"),),
        sharding_error=ShardingError(
            "ShardingTypeError",
            "the contraction is ambiguous",
            "dot_general",
            (OperandType("lhs", (8, 8), "float32", SPEC),),
            "m.py:3",
            (choice,),
        ),
    )


def _arrays(mesh: Mesh) -> tuple[Array, ...]:
    facts = ArrayFacts(True, True, False, "one process", 8, 8, 8, "device")
    kernel, *others = (
        array for array in samples.mlp_state(mesh, layers=1, depth=64) if array.path != "opt_state/0/count"
    )
    activation = dataclasses.replace(
        samples.array("x", (8, 64), SPEC, mesh, ("batch", None)),
        path="train_step/x",
        group="activation",
        program="train_step",
        origins=(ORIGIN,),
    )
    boxed = dataclasses.replace(
        others[0],
        box=Box("LogicallyPartitioned", (("embed",), None)),
        facts=facts,
        memory_kind="pinned_host",
        pattern=".*kernel",
    )
    uneven = Array(
        "output/uneven",
        "output",
        (10, 6),
        "float32",
        bytes=240,
        shards=tuple(Shard(n, ((n, n + 1), (0, 6)), 0, n // 4) for n in range(8)),
    )
    on_host = Array("params/numpy", "params", (4, 4), "float32", bytes=64, shards=())
    batch = samples.array("batch/x", (8, 64), (("data",), None), mesh, ("batch", "embed"))
    inside = dataclasses.replace(
        activation, path="train_step/y", shard_map=ShardMap(("model",), (("data",), None))
    )
    partial = dataclasses.replace(
        batch, path="gradient/x", group="gradient", unreduced=("model",), reduced=()
    )
    stages = dataclasses.replace(samples.array("params/stages", (8, 4), (("stage",), None), STAGES), mesh=0)
    return (
        kernel, boxed, *others[1:], on_host, batch, activation, uneven, inside, partial, stages,
    )  # fmt: skip


def snapshot() -> Snapshot:
    """Return the Snapshot."""
    layout = layouts.parse({}).unwrap().to_json()
    cost = LayoutCost(4096, {"data": 512, "model": None}, 1e9, 0.01)
    arrays = _arrays(MESH)
    moved = ReshardedArrays(2, (8, 4), "float32", 128, (("data",), None), (("stage",), None))
    reshard = Reshard(
        "device_put", "train.py:31", 3, MESH.devices, STAGES.devices, MESH, STAGES, (moved,),
        ((0, 1, 64), (7, 3, 32)),
    )  # fmt: skip
    return Snapshot(
        source=Source("tpu", "tpu:v5e:2x4", "2026-01-01T00:00:00Z", {"jax": "0.10.2"}, 2),
        layout=layout,
        mesh=MESH,
        arrays=arrays,
        programs=(Program("init", stage="compiled"), _program("train_step")),
        findings=(
            Finding(
                "warning",
                "replicated-parameter",
                "It is replicated.",
                arrays[1].path,
                64,
                arrays=(arrays[1].path,),
                count=1,
                axes=("data",),
                logical_axis="embed",
                logical_axes=("embed",),
                dimension=0,
                rule=0,
                rule_text="embed → data",
                rules=("embed → data",),
            ),
        ),
        live=(LiveBytes(0, "state", 3, 4096), LiveBytes(1, "nobody", 1, 64)),
        effects=Effects(
            "train_step",
            "v5e",
            cost,
            (
                Change("rule", "without embed → data", layout, cost),
                Change("axis", "without the axis model", None, None, "the batch is indivisible"),
            ),
            1,
        ),
        partitioned=(Program("train_step", collectives=COLLECTIVES[:3], stage="propagated"),),
        other_meshes=(STAGES,),
        reshards=(reshard,),
    )
