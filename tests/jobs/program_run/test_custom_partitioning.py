"""Operations with partitioning functions of the program, compiled for a GPU in another process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from inspector.machines import targets
from inspector.records import program_run, snapshot
from inspector.records.snapshot import Program
from tests.jobs.program_run.test_program_run import RUN, call
from tests.paths import ROOT as PROJECT

ROOT = str(PROJECT)

TARGET = "gpu:h100:8"
pytestmark = [
    pytest.mark.skipif(
        targets.missing_compiler(targets.parse(TARGET)) is not None,
        reason="needs the compiler for GPUs",
    ),
    pytest.mark.nightly,
]

# A product whose contracted dimension is sharded: its partitioning function sums over the axis itself.
SOURCE = """
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


@partial(custom_partitioning, static_argnums=(2,))
def product(x, w, scale):
    y = (x @ w) * scale
    return y, jnp.sum(y)


def inferred(scale, mesh, arguments, results):
    return NamedSharding(mesh, P("d", None)), NamedSharding(mesh, P())


def partitioned(scale, mesh, arguments, results):
    def local(x, w):
        y = jax.lax.psum(x @ w, "m") * scale
        return y, jax.lax.psum(jnp.sum(y), "d")

    on = lambda *spec: NamedSharding(mesh, P(*spec))
    return mesh, local, (on("d", None), on()), (on("d", "m"), on("m", None))


product.def_partition(
    infer_sharding_from_operands=inferred, partition=partitioned, sharding_rule="b k, k n -> b n, "
)
mesh = jax.make_mesh((2, 4), ("d", "m"), axis_types=(AxisType.Auto,) * 2)


def once(x, w):
    return product(x, w, 2.0)


def twice(x, w):
    return product(product(x, w, 3.0)[0] @ w.T, w, 1.0)


def arguments(make):
    return make((64, 128), P("d", "m")), make((128, 32), P("m", None))
"""
RUNS = """
x, w = arguments(lambda shape, spec: jax.device_put(jnp.ones(shape), NamedSharding(mesh, spec)))
for step in (once, twice):
    print(float(jax.jit(step)(x, w)[1]))
"""
INSPECTS = """
import inspector, json
shaped = arguments(
    lambda shape, spec: jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))
)
for step in (once, twice):
    inspector.inspect(step, *shaped, path=f"{step.__name__}.json", target="gpu:h100:8")
"""


def sent(program: Program) -> Counter[tuple]:
    return Counter(
        (collective.op, collective.mesh_axes, collective.payload_bytes)
        for collective in program.collectives or ()
    )


# 32 rows of 32 float32 of each device are summed over `m`; a number over `d`.
SUM, TOTAL = ("all-reduce", ("m",), 32 * 32 * 4), ("all-reduce", ("d",), 4)
EXPECTED = {"once": {SUM: 1, TOTAL: 1}, "twice": {SUM: 2, TOTAL: 1}}


def test_a_recorded_program_is_compiled_for_a_gpu_as_it_is_here(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOURCE + RUNS)
    alone = call(tmp_path, "train.py")
    recorded = call(tmp_path, *RUN, "--target", TARGET, "train.py")
    assert (recorded.returncode, recorded.stdout) == (0, alone.stdout), recorded.stderr
    run = program_run.read(tmp_path / "recorded")
    assert [program.target_error for program in run.programs] == [None, None]
    for record in run.programs:
        for file in (record.file, record.target_file):
            (program,) = snapshot.read(tmp_path / "recorded" / file).programs
            assert program.checkpoint_names == ()  # known to be none
            assert sent(program) == EXPECTED[record.function], file


def test_an_inspected_function_is_compiled_for_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(SOURCE + INSPECTS)
    ended = call(tmp_path, "-c", f"import sys; sys.path.insert(0, {ROOT!r}); exec(open('look.py').read())")
    assert ended.returncode == 0, ended.stderr
    for name, expected in EXPECTED.items():
        plain = json.loads((tmp_path / f"{name}.json").read_text())
        assert plain["source"]["kind"] == "gpu"
        (program,) = snapshot.read(tmp_path / f"{name}.json").programs
        assert sent(program) == expected
