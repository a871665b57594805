"""Options that make collectives asynchronous: the table against real compilers, and options of a compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.assessment.exposed import exposed
from inspector.machines import compiler_options, hardware, targets
from inspector.machines.compiler_options import OPTIONS, Options
from inspector.prediction.calibration import ASYNCHRONOUS_SUMS
from inspector.readers import hlo_text
from inspector.records.snapshot import Snapshot, Source

V5E, H100 = hardware.CHIPS["v5e"], hardware.CHIPS["h100"]
OPS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")

# One collective beside three products that are independent of it.
COMPILE = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from inspector.machines import targets
from inspector.compiling.compile_layout import devices_of
target, op, options = targets.parse(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
devices = devices_of(target)
mesh, count = Mesh(np.array(devices), ("x",)), len(devices)
run = {
    "all-gather": lambda x: jax.lax.all_gather(x, "x", tiled=True),
    "all-reduce": lambda x: jax.lax.psum(x, "x"),
    "reduce-scatter": lambda x: jax.lax.psum_scatter(x, "x", tiled=True),
    "all-to-all": lambda x: jax.lax.all_to_all(x, "x", 0, 0, tiled=True),
    "collective-permute": lambda x: jax.lax.ppermute(x, "x", [(i, (i + 1) % count) for i in range(count)]),
}[op]

def step(x, w):
    for _ in range(3):
        w = w @ w
    return run(x) * 2, w

specs = P("x"), P()
step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=specs, check_vma=False))
x = jax.ShapeDtypeStruct((count * 2048, 4096), jnp.bfloat16, sharding=NamedSharding(mesh, P("x")))
w = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16, sharding=NamedSharding(mesh, P()))
print(step.lower(x, w).compile(compiler_options=options).as_text())
"""


def compiled(text: str, op: str, options: Options, folder: Path) -> Snapshot:
    """Return the program with one collective, compiled for a target with options of XLA."""
    target = targets.parse(text)
    if lacking := targets.missing_compiler(target):
        pytest.skip(lacking)
    arguments = json.dumps(compiler_options.arguments(options))
    variables = os.environ | dict(targets.environment(target))
    command = [sys.executable, "-c", COMPILE, text, op, arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    path = folder / "program.txt"
    path.write_text(done.stdout)
    return hlo_text.read(path, path.name)


def is_hidden(snapshot: Snapshot, op: str, chip: hardware.Chip) -> bool:
    """Return whether most of the collective is hidden. Its reason otherwise is that it is synchronous."""
    (program,) = snapshot.programs
    known = exposed(snapshot, program, chip)
    assert known is not None and known.basis == "schedule"
    if not known.collectives:
        return True
    (own,) = known.collectives
    assert own.collective.op == op and own.whole is not None
    assert own.synchronous is (own.reason == "synchronous")
    assert own.synchronous is (own.seconds == pytest.approx(own.whole))
    return not own.synchronous


@pytest.mark.nightly
@pytest.mark.first_jax_is_enough
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_the_compiler_for_tpus_does_what_the_table_says(chip: str, op: str, tmp_path: Path) -> None:
    own = hardware.CHIPS[chip]
    overlap = compiler_options.overlap_of("tpu", op, own)
    assert overlap is not None
    target = f"tpu:{chip}:2x4"
    assert is_hidden(compiled(target, op, (), tmp_path), op, own) is overlap.default
    on = tuple((name, "true") for name in overlap.switches)
    assert is_hidden(compiled(target, op, on, tmp_path), op, own) is bool(overlap.switches)
    for name in overlap.switches:
        off = tuple((other, "false" if other == name else value) for other, value in on)
        assert not is_hidden(compiled(target, op, off, tmp_path), op, own), name
        assert overlap.switched_off(dict(off)) == (f"{name}=false",)


@pytest.mark.nightly
@pytest.mark.first_jax_is_enough
@pytest.mark.parametrize("op", ["all-reduce", "reduce-scatter"])
@pytest.mark.parametrize("target", ["tpu:v5e:2x4", "tpu:v5p:2x2x2", "tpu:v6e:2x4", "tpu:tpu7x:2x2x1"])
def test_reductions_are_asynchronous_where_predictions_take_them_so(
    target: str, op: str, tmp_path: Path
) -> None:
    (program,) = compiled(target, op, (), tmp_path).programs
    own = targets.parse(target).chip
    assert {one.asynchronous for one in program.collectives or ()} == {own.name in ASYNCHRONOUS_SUMS}


@pytest.mark.nightly
@pytest.mark.first_jax_is_enough
@pytest.mark.parametrize("op", OPS)
def test_the_compiler_for_gpus_does_what_the_table_says(op: str, tmp_path: Path) -> None:
    overlap = compiler_options.overlap_of("gpu", op, H100)
    assert overlap is not None and overlap.default
    assert is_hidden(compiled("gpu:h100:8", op, (), tmp_path), op, H100)
    disabled = (("xla_gpu_disable_async_collectives", overlap.word),)
    compiler_options.check(disabled)
    assert not is_hidden(compiled("gpu:h100:8", op, disabled, tmp_path), op, H100)


@pytest.mark.parametrize("chip", hardware.CHIPS)
@pytest.mark.parametrize("op", OPS)
def test_a_layout_may_have_each_option(chip: str, op: str) -> None:
    own = hardware.CHIPS[chip]
    overlap = compiler_options.overlap_of(own.kind, op, own)
    for name in () if overlap is None else overlap.switches:
        assert OPTIONS[name].allows("true") and OPTIONS[name].allows("false")
    assert compiler_options.overlap_of("cpu", op, None) is None
    assert overlap is None or overlap.switched_off({}) == ()


def test_the_options_of_a_compile_are_those_of_its_layout_and_of_the_command_line() -> None:
    empty = Snapshot(Source("tpu", None, "2026-01-01"), None, None, ())
    assert compiler_options.given(empty) is None  # a text does not say
    assert compiler_options.given(replace(empty, layout={})) == {}
    layout = {"compiler_options": {"xla_enable_async_all_gather": "False", "a": "1"}}
    source = replace(empty.source, unsafe_compiler_options="a=2,xla_gpu_disable_async_collectives=ALLGATHER")
    both = compiler_options.given(replace(empty, layout=layout, source=source))
    assert both == layout["compiler_options"] | {
        "a": "2",
        "xla_gpu_disable_async_collectives": "ALLGATHER",
    }
    # A file can have anything there.
    assert compiler_options.given(replace(empty, layout={"compiler_options": ["a"]})) == {}
    assert both is not None
    gather = compiler_options.overlap_of("tpu", "all-gather", V5E)
    of_gpu = compiler_options.overlap_of("gpu", "all-gather", H100)
    assert gather is not None and gather.switched_off(both) == ("xla_enable_async_all_gather=False",)
    assert of_gpu is not None and len(of_gpu.switched_off(both)) == 1
    assert of_gpu.switched_off({"xla_gpu_disable_async_collectives": "ALLREDUCE"}) == ()
    # What a compile could have done, and what it was not allowed to do, are different sentences.
    texts = {gather.text(options) for options in (None, {}, both)}
    assert len(texts) == 3 and "`xla_enable_async_all_gather=False`" in gather.text(both)
    assert len(of_gpu.switched_off({"xla_gpu_disable_async_collectives": "ALLCOLLECTIVES"})) == 1
