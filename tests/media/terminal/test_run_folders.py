"""Verbs that read a Snapshot also read the folder of a recorded program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.records import program_run
from tests.media.terminal.command import inspector
from tests.paths import ROOT

TRAINS = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
w = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("fsdp", None)))
x = jax.device_put(jnp.ones((8, 64)), NamedSharding(mesh, P("fsdp", None)))

@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

w = train_step(w, x)
if len(sys.argv) > 1:
    raise ValueError("died")
"""
VARIABLES = {
    **os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4", "PYTHONPATH": str(ROOT),
}  # fmt: skip


@pytest.fixture(scope="module", params=["ends", "dies", "without live arrays"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("run")
    (where / "train.py").write_text(TRAINS)
    more = ["die"] if request.param == "dies" else []
    subprocess.run(
        [sys.executable, "-m", "inspector", "run", "-o", "recorded", "train.py", *more],
        cwd=where, env=VARIABLES, capture_output=True,
    )  # fmt: skip
    if request.param == "without live arrays":
        (where / "recorded" / program_run.SNAPSHOT).unlink()
    return where / "recorded"


@pytest.mark.nightly
def test_every_verb_takes_the_folder(folder: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[spec]]\narrays = "*"\n')
    report, compared = tmp_path / "report.md", tmp_path / "compared.json"
    for command in (
        ("show", str(folder)),
        ("audit", str(folder)),
        ("predict", str(folder), "--chip", "v5e"),
        ("shards", str(folder)),
        ("device", str(folder), "--device", "0"),
        ("report", str(folder), "-o", str(report)),
        ("compare", str(folder), str(folder), "-o", str(compared)),
        ("check", str(folder), "--write-lock", str(tmp_path / "lock.sharding.json")),
    ):
        done = inspector(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert report.is_file() and compared.is_file()


@pytest.mark.nightly
def test_the_names_that_show_lists_are_those_that_explain_takes(folder: Path) -> None:
    shown = inspector("show", str(folder), "--section", "communication").stdout
    rows = [
        line.split()
        for line in shown.splitlines()
        if "train.py:" in line and "fsdp" in line and line.startswith("all-")
    ]
    assert rows
    for row in rows:
        done = inspector("explain", str(folder), "--collective", row[0], "--json")
        decoded = json.loads(done.stdout)
        assert decoded["source"] in row and decoded["mesh_axes"] == ["fsdp"]


@pytest.mark.nightly
def test_the_end_of_the_program_decides_what_the_audit_says(folder: Path) -> None:
    done = inspector("audit", str(folder), "--json")
    found = {one["code"]: one for one in json.loads(done.stdout)}
    died = program_run.read(folder).ended != "exit 0"
    assert ("program-failed" in found) == died
    said = inspector("audit", str(folder)).stdout
    assert not (died and "found nothing" in said)


def test_a_folder_without_programs_is_refused_in_one_sentence(tmp_path: Path) -> None:
    run = program_run.ProgramRun(("nothing.py",), "2026-01-01T00:00:00Z", "exit 1", 1.0)
    program_run.write(run, tmp_path)
    for verb in ("audit", "predict", "shards"):
        done = inspector(verb, str(tmp_path))
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "exit 1" in done.stderr
    other = tmp_path / "other"
    other.mkdir()
    assert inspector("audit", str(other)).returncode == 2
