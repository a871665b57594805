"""`search` on the command line: its output, its file, and bad input."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from inspector.search import result as results
from inspector.service.search import task
from tests.media.terminal.command import inspector

SMALL = ("--mesh", "4", "--axes", "data", "--set", "depth=32", "--set", "layers=1", "--steps", "1")


@pytest.fixture(scope="module", autouse=True)
def _workers_end() -> Iterator[None]:
    yield
    task.close()


def test_a_search_prints_the_best_layouts_and_writes_all_candidates(tmp_path):
    path = tmp_path / "result.json"
    done = inspector("search", *SMALL, "--chip", "v5e", "--budget", "1", "-o", str(path))
    assert done.returncode == 0, done.stderr
    found = results.read(path)
    assert found.counts.compiled == 1 and found.best_candidate is not None
    assert "Best layout" in done.stdout and "Propagating" in done.stderr
    plain = inspector("search", *SMALL, "--chip", "v5e", "--budget", "1", "--json")
    again = results.from_plain(json.loads(plain.stdout), "standard output")
    assert again.candidates == found.candidates


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--budget", "-1"), "--budget"),
        (("--budget", "many"), "--budget"),
        (("--workers", "0"), "--workers"),
        (("--lock", "tensor=3"), "tensor=3"),
        (("--vary", "mesh=4"), "mesh=4"),
        (("--chip", "v99"), "v99"),
        (("--target", "local"), "local"),
        (("--target", "plan"), "--budget 0"),
        (("--dask", "tcp://127.0.0.1:1"), "--dask"),
        (("-o", "/missing/folder/result.json"), "/missing/folder"),
        (("--objective", "beauty"), "beauty"),
    ],
)
def test_bad_input_is_one_sentence(arguments, named):
    done = inspector("search", *SMALL, *arguments)
    assert done.returncode == 2 and not done.stdout
    assert named in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()[-1:]) == 1


def test_no_layout_fits_is_said_with_the_missing_bytes():
    done = inspector(
        "search", "--model", "transformer", "--target", "tpu:v5e:2x2", "--mesh", "4", "--axes", "fsdp",
        "--set", "embed=65536", "--set", "mlp=262144", "--set", "scan=true", "--set", "layers=64",
        "--budget", "0", "--lock", "fsdp=4",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "No layout fits" in done.stdout and "missing" in done.stdout
