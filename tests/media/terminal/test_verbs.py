"""The command line with real files: a run, a closed pipe and a missing verb in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import jsonschema
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.jobs.agreement import disagreements
from inspector.records import snapshot
from tests.media.terminal.command import inspector
from tests.paths import ROOT

SMALL = ("--set", "depth=64", "--set", "layers=2", "--steps", "2")


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "inspector", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshots") / "run.json"
    done = in_a_process("inspect", "--mesh", "2x4", *SMALL, "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return path


def test_inspect_writes_a_snapshot_that_its_schema_describes(ran: Path) -> None:
    plain = json.loads(ran.read_text())
    jsonschema.validate(plain, json.loads(snapshot.SCHEMA_PATH.read_text()))
    assert plain["source"]["kind"] == "cpu"
    # The only findings are notes, for example that the state is replicated over `data`.
    assert {finding["level"] for finding in plain["findings"]} == {"note"}
    assert len(snapshot.read(ran).program("train_step").seconds.steps) == 2


def test_plan_goes_to_standard_output_and_agrees_with_the_run(ran: Path) -> None:
    done = inspector("inspect", "--target", "plan", *SMALL)
    assert done.returncode == 0
    planned = snapshot.from_json(json.loads(done.stdout))
    assert {program.stage for program in planned.programs} == {"partitioned"}
    assert disagreements(planned, snapshot.read(ran)) == ()


def test_a_snapshots_layout_and_a_layout_file_can_be_inspected_again(ran: Path, tmp_path: Path) -> None:
    layout = tmp_path / "layout.json"
    layout.write_text(json.dumps(json.loads(ran.read_text())["layout"]))
    for source in (layout, ran):
        done = inspector("inspect", str(source), "--mesh", "4x2", "--target", "plan")
        assert done.returncode == 0, done.stderr
        plain = json.loads(done.stdout)
        assert plain["layout"]["mesh"] == "4x2" and plain["layout"]["sizes"]["depth"] == 64


def test_shards_equal_those_of_jax(ran: Path) -> None:
    path = "params/DotReluDot_0/Dense_0/kernel"
    done = inspector("shards", str(ran), "--array", path, "--json")
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    value = jax.device_put(
        jax.numpy.zeros((64, 64), "float32"), NamedSharding(mesh, PartitionSpec(None, "model"))
    )
    expected = {
        shard.device.id: {
            "device": shard.device.id,
            "index": [list(part.indices(64)[:2]) for part in shard.index],
            "replica": shard.replica_id,
            "process": shard.device.process_index,
            "bytes": shard.data.nbytes,
        }
        for shard in value.addressable_shards
    }
    assert {row["device"]: row for row in json.loads(done.stdout)} == expected
    table = inspector("shards", str(ran), "--array", path).stdout.splitlines()
    assert len(table) == 9 and "[0:64, 16:32]" in table[2]


def test_show_summarizes_a_run(ran: Path) -> None:
    text = inspector("show", str(ran), "--all").stdout
    for part in (
        "data 2 × model 4 (8 devices)",
        "P(None, 'model')",
        "Train step",
        "median",
        "emulated",
    ):
        assert part in text


BAD = {
    "unknown verb": (["frobnicate"], "frobnicate"),
    "no verb": ([], "VERB"),
    "mesh": (["inspect", "--mesh", "2y4"], "mesh is '2y4'"),
    "too many devices": (["inspect", "--mesh", "32x32"], "at most 512"),
    "axes": (["inspect", "--axes", "data"], "mesh 2x4 has 2 axes"),
    "rule": (["inspect", "--rules", "hidden=tensor"], "'tensor'"),
    "size": (["inspect", "--set", "depth=wide"], "depth is 'wide'"),
    "unknown size": (["inspect", "--set", "width=8"], "'width'"),
    "size without value": (["inspect", "--set", "depth"], "SIZE=VALUE"),
    "target": (["inspect", "--target", "moon"], "target is 'moon'"),
    "model": (["inspect", "--model", "gpt9"], "model is 'gpt9'"),
    "indivisible": (
        ["inspect", "--mesh", "2x3"],
        "hidden of size 1024 is not divisible by 3 (model)",
    ),
    "no layout file": (["inspect", "nowhere.json"], "nowhere.json cannot be read"),
    "no snapshot": (["show", "nowhere.json"], "nowhere.json cannot be read"),
    "not a snapshot": (["show", str(ROOT / "pyproject.toml")], "is not JSON"),
    "no output folder": (
        ["inspect", "--target", "plan", "-o", "/dev/null/where.json"],
        "is not a folder",
    ),
    "empty file name": (["show", ""], "'' cannot be read"),
    "empty output": (["inspect", "--target", "plan", "-o", ""], "-o/--output: the value is ''"),
    "empty import": (["import", "hlo", ""], "PATH is ''"),
    "axes beyond ASCII": (["inspect", "--axes", "dätä,model"], "ASCII letters"),
    "no script": (["run", "nowhere.py"], "the script is 'nowhere.py', but must be"),
    "runs without a file": (["accuracy", "--only", "v5e"], "--runs"),
    "own model of no package": (["audit", "nowhere.json", "--model", "nope"], "--model is 'nope'"),
    "specs of a model with rules": (["inspect", "--specs", "W1=None.model"], "'specs'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_status_2_and_one_line(name: str) -> None:
    arguments, expected = BAD[name]
    done = (in_a_process if name == "no verb" else inspector)(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and expected in lines[0], done.stderr


def test_an_unknown_array_is_reported_with_the_nearest(ran: Path) -> None:
    done = inspector("shards", str(ran), "--array", "params/DotReluDot_0/W3")
    assert done.returncode == 2
    assert "params/DotReluDot_0/W2" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_failed_inspection_leaves_no_file(tmp_path: Path) -> None:
    done = inspector("inspect", "--set", "depth=100000000000", "-o", str(tmp_path / "x.json"))
    assert done.returncode == 2
    done = inspector("inspect", "--set", "depth=1000000", "-o", str(tmp_path / "x.json"))
    assert (done.returncode == 2 and "GiB" in done.stderr) or "TiB" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_closed_pipe_is_not_an_error(ran: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m inspector show {ran} | head -n 1"
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.startswith("MLP") and done.stderr == ""
