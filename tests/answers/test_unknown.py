"""Why the collectives of a program are unknown: one reason for each kind of program."""

from __future__ import annotations

from dataclasses import replace

import jax
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.answers import collectives, comparison, unknown
from inspector.compare.compared import compared
from inspector.compare.questions import questions
from inspector.machines import out_of_memory
from inspector.readers import hlo_text
from inspector.records.snapshot import Program
from tests.compare import glances


def lowered():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    value = jax.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, P("x")))
    return jax.jit(lambda a: a @ a).lower(value)


def test_text_before_partitioning_is_not_called_unreadable(tmp_path) -> None:
    file = tmp_path / "before.txt"
    file.write_text(lowered().as_text(dialect="hlo"))
    snapshot = hlo_text.read(file, "before.txt")
    (program,) = snapshot.programs
    assert program.collectives is None and program.ideal is not None
    assert "before partitioning" in unknown.no_collectives(program, snapshot)
    file.write_text(lowered().compile().as_text())
    assert hlo_text.read(file, "after.txt").programs[0].collectives is not None


def test_a_program_that_does_not_fit_is_not_called_unreadable() -> None:
    known = glances.planned()
    short = out_of_memory.shortage("Used 18.35G of 15.48G hbm")
    assert short is not None
    program = Program("train_step")
    snapshot = replace(known, programs=(program,))
    assert "missing or cannot be read" in unknown.no_collectives(program, snapshot)
    finding = out_of_memory.finding("train_step", "tpu:v5e:2x4", short)
    rejected = replace(snapshot, findings=(finding,))
    assert "does not fit" in unknown.no_collectives(program, rejected)
    # The finding of another program is no reason.
    assert "does not fit" not in unknown.no_collectives(Program("init"), rejected)
    assert collectives.of_program(program, rejected)


def test_stablehlo_without_a_mesh_says_so(tmp_path) -> None:
    file = tmp_path / "alone.mlir"
    file.write_text(jax.jit(lambda a: a @ a).lower(jnp.ones((8, 8))).as_text())
    snapshot = hlo_text.read(file, "alone.mlir")
    (program,) = snapshot.programs
    assert snapshot.mesh is None and program.collectives is None
    assert "names no mesh" in unknown.no_collectives(program, snapshot)


def test_a_reason_is_not_what_a_figure_is_based_on() -> None:
    """Without a chip, memory and traffic have a basis, and the time of a step has none."""
    rows = questions(compared([("A", glances.planned(glances.sent(("data",), 1024)))]))
    based = [row.section for row in comparison.part_rows(rows) if row.title == "based on"]
    assert based == ["Memory per device", "Traffic"]
    (step,) = [row.answers[0] for row in rows if row.title == "Step"]
    assert (step.text, step.value) == ("unknown", None) and "chip" in step.remark
