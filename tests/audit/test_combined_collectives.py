"""Findings about a combined collective count the bytes of the array that they name."""

from __future__ import annotations

from dataclasses import replace

from inspector.audit import audit
from inspector.records.snapshot import (
    Array,
    Collective,
    CollectivePart,
    Finding,
    Mesh,
    MeshAxis,
    Program,
    Schedule,
    ScheduledComputation,
    ScheduledOperation,
    Snapshot,
    Source,
)

LAYERS, WIDTH = 4, 512
STACK = 4 * LAYERS * WIDTH * WIDTH  # bytes of a stack of layers
LAYER = STACK // LAYERS


def parameter(path: str, shape: tuple[int, ...], spec: tuple) -> Array:
    size = 4
    for length in shape:
        size *= length
    return Array(
        path=path, group="params", shape=shape, dtype="float32", logical_axes=None, spec=spec,
        shard_shape=None, bytes=size, bytes_per_device=size // 8, replicas=1, memory_kind="device",
    )  # fmt: skip


def snapshot_of(collective: Collective, *arrays: Array) -> Snapshot:
    """Return a train step with one collective, compiled for TPUs, with a loop over the layers."""
    loop = ScheduledOperation("while.1", "while", times=LAYERS)
    schedule = Schedule("main", (ScheduledComputation("main", (loop,)),))
    mesh = Mesh((MeshAxis("fsdp", 8),), tuple(range(8)), device_kind="TPU v5e")
    program = Program("train_step", stage="compiled", collectives=(collective,), schedule=schedule)
    source = Source("tpu", "tpu:v5e:2x4", "2026-01-01T00:00:00+00:00", {})
    return Snapshot(source, None, mesh, arrays, (program,))


def combined(op: str, executions: int, *parts: CollectivePart) -> Collective:
    payload = sum(part.payload_bytes or 0 for part in parts)
    rounds = 2 if op == "all-reduce" else 1
    arrays = dict.fromkeys(path for part in parts for path in (*part.inputs, *part.outputs))
    return Collective(
        op, False, f"{op}.1", "main", executions, False, ("fsdp",), 8, 1, payload,
        rounds * payload * 7 // 8, arrays=tuple(arrays), parts=parts,
    )  # fmt: skip


def found(snapshot: Snapshot, code: str) -> list[Finding]:
    return [finding for finding in audit(snapshot) if finding.code == code]


STACKS = [
    parameter(f"params/{name}", (LAYERS, WIDTH, WIDTH), (None, ("fsdp",), None))
    for name in ("a", "b", "c", "d", "e")
]


def test_one_layer_of_several_stacks_is_not_a_whole_stack() -> None:
    layers = [CollectivePart(LAYER, (stack.path,)) for stack in STACKS]
    gather = combined("all-gather", LAYERS, *layers)
    assert (gather.payload_bytes or 0) > STACK
    assert found(snapshot_of(gather, *STACKS), "stack-gathered") == []


def test_a_whole_stack_beside_a_layer_is_found_with_its_own_bytes() -> None:
    gather = combined(
        "all-gather", 1, CollectivePart(STACK, ("params/a",)), CollectivePart(LAYER, ("params/b",))
    )
    (finding,) = found(snapshot_of(gather, *STACKS), "stack-gathered")
    assert finding.path == "params/a"
    assert finding.bytes == STACK - LAYER


def test_parameters_that_are_gathered_after_their_update_are_no_finding() -> None:
    """ZeRO-1 updates a shard of each parameter and gathers the new ones."""
    parts = [CollectivePart(STACK, (), (stack.path,)) for stack in STACKS]
    assert found(snapshot_of(combined("all-gather", 1, *parts), *STACKS), "stack-gathered") == []


def test_only_the_part_of_a_gradient_is_its_all_reduce() -> None:
    weight = parameter("params/w", (4096, 64), (("fsdp",), None))
    own = 4 * 4096 * 64
    parts = (CollectivePart(own, (), (weight.path,)), CollectivePart(10 * own))
    (finding,) = found(snapshot_of(combined("all-reduce", 1, *parts), weight), "gradient-all-reduced")
    assert finding.wire_bytes == 2 * own * 7 // 8


def test_a_gather_that_is_a_sum_of_zeros_reduces_no_gradient() -> None:
    weight = parameter("params/w", (4096, 64), (("fsdp",), None))
    gather = combined("all-reduce", 1, CollectivePart(4 * 4096 * 64, (weight.path,)))
    assert found(snapshot_of(gather, weight), "gradient-all-reduced") == []
    # Without parts, as in an older Snapshot, the direction is unknown.
    older = replace(gather, parts=None)
    assert len(found(snapshot_of(older, weight), "gradient-all-reduced")) == 1
