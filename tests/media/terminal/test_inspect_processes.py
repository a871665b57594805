"""The verb `inspect --processes`, and other verbs on its Snapshots."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from inspector.records import snapshot
from tests.media.terminal.command import inspector

SMALL = ("--set", "depth=64", "--set", "layers=1", "--steps", "2")
KERNEL = "params/DotReluDot_0/Dense_0/kernel"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A Snapshot of the same layout for each number of processes."""
    folder = tmp_path_factory.mktemp("snapshots")
    paths = {count: folder / f"{count}.json" for count in (1, 2)}
    for count, path in paths.items():
        done = inspector("inspect", "--processes", str(count), *SMALL, "-o", str(path))
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
    return paths


@pytest.mark.nightly
def test_the_snapshot_says_how_many_and_the_schema_describes_it(ran: dict[int, Path]) -> None:
    plain = json.loads(ran[2].read_text())
    jsonschema.validate(plain, json.loads(snapshot.SCHEMA_PATH.read_text()))
    assert plain["source"]["processes"] == 2
    assert plain["layout"]["processes"] == 2
    assert plain["mesh"]["devices"] == [0, 1, 2, 3, 2048, 2049, 2050, 2051]
    assert plain["mesh"]["processes"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {one["level"] for one in plain["findings"]} <= {"note"}  # all is where it was planned
    lines = inspector("show", str(ran[2]), "--section", "source").stdout.splitlines()
    assert ["Processes", "2"] in [line.split() for line in lines]


@pytest.mark.nightly
def test_the_shards_are_those_of_one_process_elsewhere(ran: dict[int, Path]) -> None:
    rows = {
        count: json.loads(inspector("shards", str(path), "--array", KERNEL, "--json").stdout)
        for count, path in ran.items()
    }
    for place, (one, two) in enumerate(zip(rows[1], rows[2], strict=True)):
        assert (two["process"], two["device"]) == (place // 4, place // 4 * 2048 + place % 4)
        same = ("index", "replica", "bytes")
        assert [one[key] for key in same] == [two[key] for key in same]


@pytest.mark.nightly
def test_a_snapshots_layout_is_inspected_again_by_as_many(ran: dict[int, Path]) -> None:
    done = inspector("inspect", str(ran[2]), "--target", "plan")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mesh"]["processes"] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--processes", "3"], "processes is '3', but must be one of 1, 2, 4"),
        (["--processes", "4", "--mesh", "2x3"], "must divide the 6 devices of mesh 2x3"),
        (["--set", "processes=2"], "processes is not a size of the model: use --processes"),
    ],
)
def test_bad_input_is_status_2_and_one_clear_line(arguments: list[str], said: str) -> None:
    done = inspector("inspect", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert said in line
