"""Schedules of small programs."""

from __future__ import annotations

import random

from inspector.records.snapshot import (
    Mesh,
    MeshAxis,
    Program,
    Schedule,
    ScheduledComputation,
    ScheduledOperation,
    Snapshot,
    Source,
)


def schedule(*operations: ScheduledOperation, **others: tuple[ScheduledOperation, ...]) -> Schedule:
    """Return a schedule with these operations in `main`, and `others` in computations of their own."""
    computations = {"main": operations, **others}
    return Schedule(
        "main", tuple(ScheduledComputation(name, computation) for name, computation in computations.items())
    )


def long_step(operations: int = 6_000, times: int = 4) -> Snapshot:
    """Return a Snapshot whose train step is this many operations on a TPU v5e.

    Some take 200 times as long as others. A tenth of them are the body of a loop that runs
    this often.
    """
    draw = random.Random(0)
    every = tuple(
        ScheduledOperation(
            f"fusion.{number}",
            "fusion",
            cycles=draw.randrange(500, 2_000) * (1 if number % 600 else 200),
            op_name=f"jit(step)/jvp(Model)/blocks_{number}/dot_general",
        )
        for number in range(operations)
    )
    body = operations // 10
    loop = ScheduledOperation("while.1", "while", runs=("body",), times=times)
    program = Program(
        "train_step", schedule=schedule(*every[body:], loop, body=every[:body]), stage="compiled"
    )
    mesh = Mesh((MeshAxis("data", 4),), devices=tuple(range(4)), device_kind="TPU v5 lite")
    source = Source("hlo", None, "2026-01-01T00:00:00Z", {})
    return Snapshot(source, None, mesh, (), programs=(program,))
