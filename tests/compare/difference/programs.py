"""Snapshots with programs for tests: plans, with collectives and memory written here by hand."""

from __future__ import annotations

import dataclasses

from inspector.records.snapshot import Collective, Memory, Program, Seconds, Snapshot, Source


def collective(op: str, axes: tuple[str, ...] | None, wire: int | None, times: int | None = 1) -> Collective:
    """Return one instruction that sends `wire` bytes per execution."""
    return Collective(op, False, f"{op}.1", "main", times, False, axes, 2, 4, wire, wire)  # fmt: skip


def ran(
    snapshot: Snapshot,
    *collectives: Collective,
    kind: str = "cpu",
    memory: Memory | None = None,
    steps: tuple[float, ...] = (0.1, 0.2, 0.3),
    target: str | None = None,
) -> Snapshot:
    """Return the plan as if its train step had been run, or compiled for a target."""
    seconds = Seconds(steps=steps) if kind == "cpu" else None
    program = Program("train_step", 1e9, memory, collectives, seconds)
    source = Source(kind, target or kind, "2026-01-01T00:00:00Z", {"jax": "0.10.2"})  # type: ignore[arg-type]
    return dataclasses.replace(snapshot, source=source, programs=(program,))
