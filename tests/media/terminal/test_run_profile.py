"""`run --profile`: the program is as without it, and its steps have measured times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.media.terminal.run_verb import with_number
from inspector.readers import profile
from inspector.records import snapshot
from inspector.records.snapshot import Trace
from tests.paths import ROOT

pytestmark = pytest.mark.close_to_jax

PROGRAM = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
w = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P(None, "model")))
x = jax.device_put(jnp.ones((16, 64)), NamedSharding(mesh, P("data", None)))

@jax.jit
def train_step(w, x):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
    return w - 0.1 * gradient, loss

def steps(count):
    global w
    for _ in range(count):
        w, loss = train_step(w, x)
        print(float(loss))
    jax.block_until_ready(w)
"""
STEPS = PROGRAM + "steps(int(sys.argv[1]))\nsys.exit(int(sys.argv[2]))\n"
PROFILES_ITSELF = (
    PROGRAM
    + """
steps(2)
with jax.profiler.trace(sys.argv[1]):
    steps(4)
steps(2)
"""
)


def run(
    folder: Path, program: str, *arguments: str, profiled: bool = True
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(program)
    start = [sys.executable]
    if profiled:
        start += ["-m", "inspector", "run", "-o", "run", "--profile", "2"]
    variables = os.environ | {
        "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(ROOT) if profiled else "",
    }  # fmt: skip
    command = [*start, "train.py", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def trace_of(folder: Path) -> Trace | None:
    result = snapshot.read(folder / "run/snapshot.json")
    (program,) = result.programs
    return program.trace


def test_the_program_is_as_without_it_and_its_steps_are_measured(tmp_path: Path) -> None:
    alone = run(tmp_path, STEPS, "6", "3", profiled=False)
    recorded = run(tmp_path, STEPS, "6", "3")
    assert (recorded.returncode, recorded.stdout) == (alone.returncode, alone.stdout) == (3, alone.stdout)
    assert len(alone.stdout.splitlines()) == 6
    trace = trace_of(tmp_path)
    assert trace is not None and trace.steps == 6 and len(trace.devices) == 8
    (program,) = snapshot.read(tmp_path / "run/snapshot.json").programs
    assert program.stage == "measured" and program.seconds is not None
    assert len(program.seconds.steps) == trace.steps
    assert program.seconds.compile is not None  # of the recorder
    names = {time.name for time in trace.instructions}
    assert {collective.name for collective in program.collectives or ()} <= names
    (folder,) = (tmp_path / "run/programs").iterdir()
    assert json.loads(folder.read_text())["programs"][0]["trace"]["steps"] == trace.steps
    assert not list((tmp_path / "run").glob("profile-*"))
    # The profile itself is kept, and says the same.
    imported = profile.read(tmp_path / "run/profile", "profile")
    (own,) = (program for program in imported.programs if program.name == "jit_train_step")
    assert own.trace == trace


def test_a_program_that_profiles_itself_has_its_own_profile(tmp_path: Path) -> None:
    recorded = run(tmp_path, PROFILES_ITSELF, str(tmp_path / "own"))
    assert recorded.returncode == 0 and len(recorded.stdout.splitlines()) == 8
    assert "profiles itself" in recorded.stderr
    (own,) = (program for program in profile.read(tmp_path / "own", "own").programs if "step" in program.name)
    assert own.trace is not None and own.trace.steps == 4
    assert trace_of(tmp_path) is None


@pytest.mark.first_jax_is_enough
def test_a_program_without_steps_says_so(tmp_path: Path) -> None:
    recorded = run(tmp_path, "print(1)\n")
    assert recorded.returncode == 0 and recorded.stdout == "1\n"
    assert "no steps were profiled" in recorded.stderr


@pytest.mark.first_jax_is_enough
@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (["--profile", "train.py", "--lr", "3"], ["--profile=3", "train.py", "--lr", "3"]),
        (["--profile", "12", "-m", "pkg", "--profile"], ["--profile=12", "-m", "pkg", "--profile"]),
        (["-o", "--profile", "train.py"], ["-o", "--profile", "train.py"]),
        (["--open", "--profile", "-1", "train.py"], ["--open", "--profile=-1", "train.py"]),
        (["train.py", "--profile", "5"], ["train.py", "--profile", "5"]),
        (["--profile=5", "train.py"], ["--profile=5", "train.py"]),
        (["--profile"], ["--profile=3"]),
    ],
)
def test_the_script_is_not_the_number_of_steps(given: list[str], parsed: list[str]) -> None:
    assert with_number(given) == parsed
