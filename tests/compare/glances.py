"""Snapshots with known memory, traffic and work, for the layouts at a glance."""

from __future__ import annotations

from dataclasses import replace

from inspector.records.snapshot import (
    Collective,
    MatmulFlops,
    Memory,
    Program,
    ProgramArray,
    Seconds,
    Snapshot,
    Source,
    Work,
)
from tests.figures import samples


def sent(axes: tuple[str, ...] | None, wire: int | None, executions: int | None = 3) -> Collective:
    """An all-reduce over mesh axes of two devices each, so that its payload is what it sends."""
    return Collective(
        op="all-reduce", asynchronous=False, name="all-reduce", computation="main",
        executions=executions, conditional=False, mesh_axes=axes, group_size=2, groups=4,
        payload_bytes=wire, wire_bytes_per_device=wire, op_name=None, source=None,
    )  # fmt: skip


def planned(*collectives: Collective, flops: float = 1e12, **axes: int) -> Snapshot:
    """A plan with a partitioned train step."""
    mesh = samples.mesh(**(axes or {"data": 2, "model": 2}))
    snapshot = samples.snapshot(mesh)
    work = Work(flops, (MatmulFlops("bf16", flops),), None, boundary_bytes=1e6)
    step = Program("train_step", collectives=collectives, work=work, stage="propagated")
    source = Source("plan", "plan", "2026-01-01T00:00:00Z")
    return replace(snapshot, source=source, programs=(step,))


def compiled(temporaries: int, *collectives: Collective, aliased: int = 0) -> Snapshot:
    """A step that was compiled for a TPU, whose arguments are the parameters."""
    mesh = replace(samples.DEFAULT_MESH, device_kind="TPU v5e")
    kernels = tuple(array for array in samples.mlp_state(mesh) if array.group == "params")
    size = sum(kernel.bytes_per_device or 0 for kernel in kernels)
    shardings = tuple(
        ProgramArray("input", kernel.path, kernel.spec, kernel.spec, True) for kernel in kernels
    )
    step = Program(
        "train_step",
        memory=Memory(size, 4096, aliased, temporaries, 128, None),
        collectives=collectives,
        seconds=Seconds(steps=(0.5, 0.7, 0.6)),
        shardings=shardings,
        stage="compiled",
    )
    source = Source("tpu", "tpu:v5e:2x4", "2026-01-01T00:00:00Z")
    return Snapshot(source, None, mesh, kernels, (step,))
