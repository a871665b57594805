"""Causes of the collectives of a recorded program, and computation that its devices repeat."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inspector import audit
from inspector.assessment.activations import activations
from inspector.jobs.program_run import folder_snapshot
from inspector.layout.plan import CAUSES_UNKNOWN
from inspector.records import program_run
from inspector.records.snapshot import Snapshot
from tests.answers.test_reasons import reason
from tests.jobs.program_run.test_program_run import RUN, call
from tests.paths import ROOT

pytestmark = pytest.mark.nightly

SCRIPT = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("data", "fsdp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
weights = jax.device_put(jnp.ones((64, 32)), NamedSharding(mesh, P("fsdp")))
batch = jax.device_put(jnp.ones((16, 64)), NamedSharding(mesh, P(("data", "fsdp"))))


@jax.jit
def step(weights, batch):
    return jax.grad(lambda w: jnp.tanh(batch @ w).sum())(weights)


@jax.jit
def accumulated(weights, batch):
    # Each part of the batch is on half of the devices, so each product is computed twice.
    return jax.lax.map(lambda part: part @ weights, batch.reshape(2, 8, 64)).sum()


jax.block_until_ready((step(weights, batch), accumulated(weights, batch)))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("causes")
    (folder / "script.py").write_text(SCRIPT)
    ended = call(folder, *RUN, "script.py")
    assert ended.returncode == 0, ended.stderr
    assert not list((folder / "recorded").rglob("*.mlirbc"))
    return folder_snapshot.read(folder / "recorded")


def test_each_collective_has_a_cause_in_terms_of_the_program(found: Snapshot) -> None:
    program = found.program("step")
    assert program is not None and program.collectives
    gather = next(collective for collective in program.collectives if collective.op == "all-gather")
    assert gather.mesh_axes == ("fsdp",)
    assert [origin.from_.rpartition("/")[2] for origin in gather.origins or ()] == ["weights"]
    said = reason(program, gather)
    assert said is not None and "P('fsdp', None)" in said and "P(None, None)" in said
    line = 1 + SCRIPT[: SCRIPT.index("jnp.tanh")].count("\n")
    assert gather.source == f"script.py:{line}"
    for collective in program.collectives:
        assert collective.origins and reason(program, collective)


def test_conflicts_have_their_source_line_and_compiled_collectives(found: Snapshot) -> None:
    program = found.program("step")
    assert program is not None and program.conflicts
    names = {collective.name for collective in program.collectives or ()}
    for conflict in program.conflicts:
        assert conflict.source and conflict.source.startswith("script.py:")
        assert set(conflict.collectives) <= names and conflict.collectives


def test_partitioned_and_compiled_programs_agree(found: Snapshot) -> None:
    assert {program.name for program in found.partitioned or ()} == {"step", "accumulated"}


def test_repeated_computation_and_parts_of_axes(found: Snapshot) -> None:
    program = found.program("accumulated")
    assert program is not None and program.ideal is not None and program.work is not None
    assert program.ideal.flops and program.work.flops
    repeated = 8 * program.work.flops / program.ideal.flops
    codes = {finding.code for finding in audit.audited(found).findings if "accumulated" in finding.message}
    assert ("repeated-work" in codes) == (repeated > 1.5)
    for collective in program.collectives or ():
        assert collective.mesh_axes is not None or collective.axis_parts


# It interrupts the search for causes, as Ctrl-C does. This process has no JAX, because the program is forked.
INTERRUPTED = """
import sys
import re
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from inspector.records.program_run import ProgramRun
from inspector.jobs.program_run.launch import LaunchedProgram
from inspector.jobs.program_run.records import RunFolder

folder = RunFolder(Path("recorded"), ProgramRun(("script.py",), "2026-01-01T00:00:00+00:00"))
folder.create()
assert LaunchedProgram(["script.py"], folder.path).wait() == 0


def interrupted(found, module):
    raise KeyboardInterrupt


folder.end("exit 0", 1.0, interrupted)
"""


def test_an_interrupt_while_causes_are_sought_leaves_a_complete_record(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    ended = call(tmp_path, "interrupted.py", str(ROOT))
    assert ended.returncode == 0, ended.stderr
    run = program_run.read(tmp_path / "recorded")
    assert run.ended == "exit 0" and run.analysis_seconds is not None
    assert {program.function for program in run.programs} == {"step", "accumulated"}
    names = {program.name for program in folder_snapshot.read(tmp_path / "recorded").programs}
    assert names == {"step", "accumulated"}
    assert not (tmp_path / "recorded" / "raw").exists()


# The worker that partitions the programs fails.
FAILED = (
    INTERRUPTED.partition("def interrupted")[0]
    + """
from inspector.jobs.program_run.causes import CauseFinder
from inspector.text.errors import InvalidInput


class FailingPool:
    def submit(self, *job):
        raise InvalidInput("the worker ended")


folder.end("exit 0", 1.0, CauseFinder(FailingPool()))
"""
)


def test_why_causes_are_unknown_is_in_the_record_of_all_programs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "failed.py").write_text(FAILED)
    ended = call(tmp_path, "failed.py", str(ROOT))
    assert ended.returncode == 0, ended.stderr
    found = folder_snapshot.read(tmp_path / "recorded")
    notes = {finding.program: finding.message for finding in found.findings if finding.code == CAUSES_UNKNOWN}
    assert notes.keys() == {"step", "accumulated"}
    assert all("the worker ended" in message for message in notes.values())


REMATERIALIZED = """
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
weights = jax.device_put(jnp.ones((3, 64, 64)), NamedSharding(mesh, P()))
batch = jax.device_put(jnp.ones((16, 64)), NamedSharding(mesh, P("data")))


def block(x, w):
    return jnp.sin(checkpoint_name(jnp.tanh(checkpoint_name(x @ w, "up")) @ w.T, "down"))


@jax.jit
def step(weights, batch):
    saved = jax.checkpoint(block, policy=jax.checkpoint_policies.save_only_these_names("up"))
    return jax.grad(lambda w: jax.lax.scan(lambda x, w: (saved(x, w), None), batch, w)[0].sum())(weights)


jax.block_until_ready(step(weights, batch))
"""


def test_the_activations_of_a_recorded_program_have_the_names_in_its_code(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(REMATERIALIZED)
    ended = call(tmp_path, *RUN, "script.py")
    assert ended.returncode == 0, ended.stderr
    snapshot = folder_snapshot.read(tmp_path / "recorded")
    program = snapshot.program("step")
    assert program is not None
    known = activations(snapshot, program, None)
    assert known is not None and known.as_asked
    kept = {row.label: (row.place, row.count, row.bytes) for row in known.rows if row.named}
    assert kept["up"] == ("device", 3, 3 * 2 * 64 * 4)  # of 16 rows, a device has 2
    assert kept["down"][0] == "recomputed"


LAYERS = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
cut = lambda *spec: NamedSharding(mesh, P(*spec))
layers = [
    (
        jax.device_put(jnp.ones((64, 128), jnp.bfloat16), cut(None, "model")),
        jax.device_put(jnp.ones((128, 64), jnp.bfloat16), cut("model", None)),
    )
    for _ in range(3)
]


@jax.jit
def apply(layers, x):
    for up, down in layers:
        x = x + jnp.tanh(x @ up) @ down
    return x


x = jax.device_put(jnp.ones((16, 64), jnp.bfloat16), cut())
apply(layers, x)
print(apply.lower(layers, x).compile().as_text())
"""


def test_equal_collectives_of_layers_come_from_the_weights_of_their_own_layer(tmp_path: Path) -> None:
    """A collective is of the last layer of which the compiled text needs an argument for it."""
    (tmp_path / "layers.py").write_text(LAYERS)
    ended = call(tmp_path, *RUN, "layers.py")
    program = folder_snapshot.read(tmp_path / "recorded").program("apply")
    assert ended.returncode == 0 and program is not None and program.collectives, ended.stderr
    layers: dict[str, int] = {}  # by value: the last layer of which it needs an argument
    for line in ended.stdout.partition("\nENTRY ")[2].splitlines()[1:]:
        name, _, rest = line.strip().removeprefix("ROOT ").partition(" = ")
        argument = re.search(r'op_name="layers\[(\d)\]', rest) if " parameter(" in rest else None
        needs = [
            layers.get(operand, -1) for operand in re.findall(r"%[\w.-]+", rest.partition("metadata=")[0])
        ]
        layers[name] = int(argument[1]) if argument else max(needs, default=-1)
    own = {}
    for collective in program.collectives:
        own[collective.name] = {origin.from_.split("/")[-2] for origin in collective.origins or ()}
    assert own == {name: {str(layers[f"%{name}"])} for name in own}
    assert len(own) == 3 and len({*map(str, own.values())}) == 3
