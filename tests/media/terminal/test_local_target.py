"""The target `local`: a run on the devices that JAX finds, here CPU devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inspector.records import snapshot
from tests.paths import ROOT

SMALL = (
    "--target",
    "local",
    "--mesh",
    "2x2",
    "--set",
    "depth=64",
    "--set",
    "layers=1",
    "--steps",
    "2",
)


def inspector(devices: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where JAX finds this number of CPU devices."""
    found = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    return subprocess.run(
        [sys.executable, "-m", "inspector", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=180, env=os.environ | found,
    )  # fmt: skip


@pytest.mark.nightly
def test_runs_on_the_devices_that_jax_finds(tmp_path: Path) -> None:
    path = tmp_path / "local.json"
    done = inspector(6, "inspect", *SMALL, "-o", str(path))
    assert done.returncode == 0, done.stderr
    result = snapshot.read(path)
    assert (result.source.kind, result.source.target) == ("local", "local")
    assert result.mesh is not None
    assert (result.mesh.devices, result.mesh.device_kind) == ((0, 1, 2, 3), "cpu")
    train_step = result.program("train_step")
    assert train_step is not None and train_step.stage == "run" and train_step.seconds is not None
    assert len(train_step.seconds.steps) == 2 and train_step.collectives


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("more", "said"),
    [((), "target local has 2 (cpu)"), (("--processes", "2"), "must be 1 for target local")],
)
def test_what_this_machine_cannot_run_is_one_line(tmp_path: Path, more: tuple[str, ...], said: str):
    path = tmp_path / "local.json"
    done = inspector(2, "inspect", *SMALL, *more, "-o", str(path))
    assert done.returncode == 2 and not path.exists()
    assert said in done.stderr.splitlines()[-1]
