"""The modelled step says what each number of FLOPs counts, and what its bounds are."""

from __future__ import annotations

import pytest

from inspector.answers import summary
from inspector.answers.section import Folded, Picture, Table
from inspector.answers.time import flops_counts, measured, section
from inspector.machines import targets
from inspector.machines.hardware import CHIPS
from inspector.machines.targets import EMULATED, PROFILED
from inspector.media.markdown import render
from inspector.prediction.step_model import modelled
from inspector.records.snapshot import (
    Collective,
    Kind,
    MatmulFlops,
    Mesh,
    MeshAxis,
    Program,
    Seconds,
    Snapshot,
    Source,
    Work,
)

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


@pytest.mark.parametrize(("number", "said"), [(1, False), (2, True)])
def test_a_bound_below_its_longest_term_has_the_reason(number: int, said: bool) -> None:
    """Two collectives of one operation wait for the hops of the links once if a compiler combines them."""
    small = Collective("all-reduce", False, "r", "main", 1, False, ("data",), 2, 1, 8, 8)
    step = Program("train_step", stage="propagated", collectives=(small,) * number, work=work(1.0))
    snapshot = Snapshot(Source("plan", None, "2026-01-01T00:00:00Z", {}), None, MESH, (), programs=(step,))
    written = render(section(snapshot, CHIPS["v5e"]).blocks)
    assert ("collectives of one operation over the same mesh axes as one" in written) == said


@pytest.mark.parametrize(
    ("seconds", "pictures"),
    [
        (Seconds(steps=(1.0, 2.0)), ["timing_steps"]),
        (Seconds(compile=1.0), []),
        (Seconds(compile=1.0, steps=(1.0, 2.0)), ["timing_steps"]),
    ],
)
def test_steps_have_a_picture_and_compiles_a_table(seconds: Seconds, pictures: list[str]) -> None:
    step = Program("train_step", stage="run", seconds=seconds)
    run = Snapshot(Source("cpu", "cpu", "2026-01-01T00:00:00Z", {}), None, MESH, (), programs=(step,))
    (measured_on,) = measured(run)
    drawn = [block for block in measured_on.blocks if isinstance(block, Picture)]
    assert [block.key for block in drawn] == pictures
    assert all(block.build(400) is not None for block in drawn)
    assert isinstance(measured_on.blocks[-1], Folded if pictures else Table)


@pytest.mark.parametrize(("kind", "where"), [("profile", PROFILED), ("capture", EMULATED), ("cpu", EMULATED)])
def test_the_machine_of_a_snapshot_is_not_called_this_one(kind: Kind, where: str) -> None:
    """A Snapshot can come from another machine."""
    mesh = Mesh((MeshAxis("x", 8),), tuple(range(8)), device_kind="cpu")
    program = Program("train_step", seconds=Seconds(steps=(1.0, 1.1)))
    snapshot = Snapshot(Source(kind, None, "now"), None, mesh, (), (program,))
    assert targets.measured_where(snapshot) == where
    said = render(measured(snapshot))
    assert "this machine" not in said and "8 emulated devices" in said and "share the cores" in said
    assert render([summary.line(snapshot)]).startswith("8 emulated devices")
