"""Each number of FLOPs of the modelled step says what it counts."""

from __future__ import annotations

from inspector.core.snapshot import MatmulFlops, Mesh, MeshAxis, Program, Work
from inspector.machines.hardware import CHIPS
from inspector.machines.prediction.step_model import modelled
from inspector.sections.time import flops_counts

MESH = Mesh((MeshAxis("data", 2),), (0, 1), device_kind="cpu")


def work(flops: float) -> Work:
    return Work(flops, (MatmulFlops("bfloat16", flops),), 1e9)


def test_matrix_products_and_all_operations_have_their_own_labels() -> None:
    step = Program(
        "train_step",
        flops_per_device=5e12,
        work=work(4e12),
        ideal=work(7e12),
        collectives=(),
    )
    counts = flops_counts(modelled(step, MESH, CHIPS["v5e"]), step)
    assert [*counts.values()] == [4e12, 5e12, 7e12]
    matrix, everything, ideal = counts
    assert "matrix" in matrix and "matrix" not in everything and "before partitioning" in ideal


def test_unknown_numbers_are_left_out() -> None:
    step = Program("train_step", collectives=())
    assert not flops_counts(modelled(step, MESH, CHIPS["v5e"]), step)
