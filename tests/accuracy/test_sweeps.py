"""Sweeps of layouts: which of their rows are published runs, and the order of the predictions for these."""

from __future__ import annotations

import json

import pytest

from benchmarks.accuracy import sweeps
from inspector.compare.measured.accuracy import AccuracyRow
from inspector.text.errors import InvalidInput
from tests.compare.measured.test_published_runs import ROW, read

# Names of runs, mesh axes, and measured and predicted seconds.
RUNS = {
    "a": ({"fsdp": 64}, 1.0, 2.0),
    "b": ({"fsdp": 16, "tensor": 4}, 2.0, 3.0),
    "c": ({"fsdp": 8, "tensor": 8}, 2.1, 1.0),
}


@pytest.fixture
def runs(tmp_path):
    rows = [
        ROW | {"id": name, "layout": {"axes": axes}, "measured": {"step_seconds": seconds}}
        for name, (axes, seconds, _) in RUNS.items()
    ]
    return read(tmp_path, *rows)


def swept(tmp_path, runs, *layouts, chips=64, model="a model (4 layers)", hardware="TPU v5p"):
    file = tmp_path / "sweeps.json"
    rows = [{"layout": layout, "chips": chips} for layout in layouts]
    one = {"id": "s", "hardware": hardware, "model": model, "rows": rows}
    file.write_text(json.dumps({"sweeps": [one]}))
    predicted = [
        AccuracyRow(run.name, run.chip, run.model, run.chips, run.seconds, predicted=RUNS[run.name][2])
        for run in runs
    ]
    (sweep,) = sweeps.read(file, runs, predicted)
    return sweep


def test_the_order_of_a_sweep(tmp_path, runs):
    result = swept(tmp_path, runs, "fsdp=64", "fsdp=16,tensor=4", "fsdp=8, dcn tensor=8", "data=64")
    assert (result.rows, result.known) == (4, ("a", "b", "c"))
    # b and c differ by 5% only; c is predicted to be faster than a, which is wrong.
    assert (result.right, result.pairs) == (1, 2)


@pytest.mark.parametrize("other", [{"chips": 128}, {"model": "another model"}, {"hardware": "TPU v4"}])
def test_other_layouts_are_no_published_runs(tmp_path, runs, other):
    result = swept(tmp_path, runs, "fsdp=64", "fsdp=16,tensor=4", **other)
    assert (result.rows, result.known, result.pairs) == (2, (), 0)


@pytest.mark.parametrize("text", ["[]", "{}", '{"sweeps": [3]}', '{"sweeps": [{"rows": 3}]}', "{"])
def test_bad_files(tmp_path, text):
    file = tmp_path / "sweeps.json"
    file.write_text(text)
    with pytest.raises(InvalidInput):
        sweeps.read(file, (), ())
