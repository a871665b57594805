"""`search` on the command line: its output, its file, and bad input."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from inspector import layout as layouts
from inspector.files import strict_json
from inspector.machines import targets
from inspector.media.terminal import search_verb
from inspector.media.terminal.search_verb import Printed
from inspector.search import result as results
from inspector.search import tasks
from inspector.search.result import Counts, SearchProgress
from inspector.text.formatting import seconds_text
from tests.media.terminal.command import inspector

SMALL = ("--mesh", "4", "--axes", "data", "--set", "depth=32", "--set", "layers=1", "--steps", "1")


@pytest.fixture(scope="module", autouse=True)
def _workers_end() -> Iterator[None]:
    yield
    tasks.close()


@pytest.mark.nightly
def test_a_search_prints_the_best_layouts_and_writes_all_candidates(tmp_path):
    path = tmp_path / "result.json"
    done = inspector("search", *SMALL, "--chip", "v5e", "--budget", "1", "-o", str(path))
    assert done.returncode == 0, done.stderr
    search_result = results.from_plain(strict_json.read(path), str(path))
    assert search_result.counts.compiled == 1 and search_result.best_candidate is not None
    assert seconds_text(search_result.best_candidate.seconds) in done.stdout.splitlines()[1]
    assert "Partitioning" in done.stderr
    plain = inspector("search", *SMALL, "--chip", "v5e", "--budget", "1", "--json")
    again = results.from_plain(json.loads(plain.stdout), "standard output")
    assert again.candidates == search_result.candidates


def test_off_a_terminal_progress_is_a_line_for_each_phase_and_every_ten_seconds(capsys):
    times = iter([0.0, 1.0, 9.9, 10.0, 15.0, 20.0, 21.0])
    printed = Printed(lambda: next(times))
    phases = ["bound", "bound", "bound", "bound", "partition", "partition", "done"]
    for done, phase in enumerate(phases):
        printed(SearchProgress(phase, done, 10, Counts(), None, done))
    lines = capsys.readouterr().err.splitlines()
    assert ["0 of" in lines[0], "3 of" in lines[1], "4 of" in lines[2]] == [True] * 3
    assert len(lines) == 4


def test_off_a_terminal_a_task_that_takes_long_does_not_end_the_lines(capsys):
    times = iter([0.0, *(11.0 * number for number in range(1, 1000))])
    printed = Printed(lambda: next(times))
    printed(SearchProgress("partition", 1, 10, Counts(), None, 1))
    with printed.repeated():
        time.sleep(1.5)  # nothing is reported
    assert len(capsys.readouterr().err.splitlines()) >= 2


@pytest.mark.parametrize(("given", "budget"), [(None, 0), ("3", 3)])
def test_without_the_compiler_the_default_is_to_partition_alone(given, budget, monkeypatch, capsys):
    monkeypatch.setattr(targets, "_COMPILERS", {"tpu": ("no_such_package", "tpu")})
    layout = layouts.parse({"target": "tpu:v5e:2x2", "mesh": "4", "axes": "data"}).unwrap()
    assert search_verb._budget(given, layout) == budget
    assert ("pip install" in capsys.readouterr().err) == (given is None)


# Values of an option that are not valid, and what the error names: the value, or the text after `>`.
BAD = {
    "--budget": ("-1 > --budget", "many"),
    "--workers": ("0 > --workers",),
    "--lock": ("tensor=3",),
    "--vary": ("mesh=4",),
    "--chip": ("v99",),
    "--target": ("local", "plan > --budget 0"),
    "--dask": ("tcp://127.0.0.1:1", "foo", "tls://127.0.0.1:1"),
    "-o": ("/dev/null/result.json > /dev/null",),
    "--objective": ("beauty",),
}


@pytest.mark.parametrize(("option", "value"), [(option, value) for option in BAD for value in BAD[option]])
def test_bad_input_is_one_sentence(option, value, monkeypatch):
    monkeypatch.setattr(tasks, "_CONNECT_SECONDS", 1)
    value, _, named = value.partition(" > ")
    done = inspector("search", *SMALL, option, value)
    assert done.returncode == 2 and not done.stdout
    errors = [line for line in done.stderr.splitlines() if line.startswith("sharding-inspector: ")]
    assert len(errors) == 1 and done.stderr.rstrip().endswith(errors[0])
    assert (named or value) in errors[0] and "Traceback" not in done.stderr


def test_no_layout_fits_is_said_with_the_missing_bytes():
    done = inspector(
        "search", "--model", "transformer", "--target", "tpu:v5e:2x2", "--mesh", "4", "--axes", "fsdp",
        "--set", "embed=65536", "--set", "mlp=262144", "--set", "scan=true", "--set", "layers=64",
        "--budget", "0", "--lock", "fsdp=4",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "No layout fits" in done.stdout and "missing" in done.stdout


@pytest.fixture(scope="module")
def result(tmp_path_factory, _workers_end) -> str:
    """A search of eight emulated devices, of whose candidates one is compiled for a chip."""
    path = tmp_path_factory.mktemp("search") / "result.json"
    done = inspector("search", *SMALL, "--chip", "v5e", "--budget", "2", "-o", str(path))
    assert done.returncode == 0, done.stderr
    return str(path)


@pytest.mark.nightly
def test_compare_and_report_take_the_best_layouts_of_a_result(result, tmp_path):
    compared = tmp_path / "compared.json"
    assert inspector("compare", result, "-o", str(compared)).returncode == 0
    search_result = results.from_plain(strict_json.read(result), str(result))
    plain = json.loads(compared.read_text())
    assert len(plain["snapshots"]) == 4
    assert any("current" in one["name"] for one in plain["snapshots"])
    report = tmp_path / "report.md"
    assert inspector("report", result, "-o", str(report)).returncode == 0
    best = search_result.best_candidate
    assert best is not None and best.layout is not None
    assert report.stat().st_size > 1000


@pytest.mark.nightly
def test_prefill_and_decode_are_searched_together(tmp_path):
    """The round of the current layout is that of its programs."""
    sizes = {"layers": 1, "embed": 256, "mlp": 1024, "vocab": 1024, "head_dim": 128, "heads": 4}
    sizes |= {"kv_heads": 4, "batch": 16, "cache": 256, "seq": 128, "prefill_batch": 4}
    rules = "mlp=tensor,vocab=tensor"
    layout = ["--model", "transformer", "--mesh", "2", "--axes", "tensor", "--rules", rules]
    layout += [part for name, size in sizes.items() for part in ("--set", f"{name}={size}")]
    layout += ["--target", "plan"]
    path = tmp_path / "result.json"
    options = ["--chip", "v5e", "--budget", "0", "--lock", "mesh", "--weights", "prefill=1,decode=32"]
    done = inspector("search", *layout, *options, "-o", str(path))
    assert done.returncode == 0, done.stderr
    search_result = results.from_plain(strict_json.read(path), str(path))
    assert search_result.weights == {"prefill": 1.0, "decode": 32.0}
    best, current = search_result.best_candidate, search_result.current
    assert best is not None and current is not None
    prefill, decode = (program.seconds for program in current.programs)
    assert current.seconds == pytest.approx(4 * prefill + 32 * decode)
    assert best.seconds < current.seconds

    refused = inspector("search", *layout, "--chip", "v5e", "--budget", "0", "--limits", "decode=5")
    assert refused.returncode == 2 and "limits" in refused.stderr
