"""Published trials of layouts: what the models can express, and what propagation predicts for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cachetools import cached

from benchmarks.accuracy import layout_trials
from benchmarks.accuracy.layout_trials import Trial
from inspector.layout import Layout
from inspector.layout.plan import plan, with_programs
from inspector.machines import hardware
from inspector.media import terminal as command_line
from inspector.partition.partition_layout import partitioned_programs
from inspector.prediction.predicted import boundary_seconds, predicted
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state

MODELS = {
    "small": {"layers": 1, "d_model": 64, "heads": 4, "d_ff": 128},
    "too_large": {"layers": 2, "d_model": 65536, "heads": 512, "d_ff": 131072},
}
ROW: dict[str, Any] = {
    "model": "small", "seq": 2048, "gpus": 8, "tp": 1, "pp": 1, "dp": 8, "micro_batch": 1,
    "act_ckpt": "disabled", "kernel": "torch", "sequence_parallel": None, "step_seconds": 2.0,
}  # fmt: skip


def read(folder: Path, *rows: dict[str, Any]) -> tuple[Trial, ...]:
    path = folder / "trials.json"
    path.write_text(json.dumps({"models": MODELS, "rows": rows}))
    return layout_trials.read(path)


@cached({}, key=lambda layout: layout.key())
def propagate(layout: Layout) -> Snapshot:
    programs = partitioned_programs(layout, origins=False, only=("train_step", "apply"))
    return with_programs(plan(layout, abstract_state(layout)), programs)


def test_a_trial_is_one_microbatch_of_a_layout(tmp_path: Path) -> None:
    row = ROW | {"tp": 2, "dp": 4, "micro_batch": 2, "act_ckpt": "every_layer", "kernel": "flash 2"}
    (trial,) = read(tmp_path, row | {"sequence_parallel": True})
    layout = trial.layout
    assert layout is not None and layout.target == "gpu:a100:8"
    assert dict(zip(layout.axis_names, layout.mesh_shape, strict=True)) == {"data": 4, "tensor": 2}
    assert layout.optimizer_axes == ("data",)
    assert dict(layout.rules)["seq"] == ("tensor",)
    sizes = {name: layout.sizes[name] for name in ("batch", "head_dim", "remat", "attention")}
    assert sizes == {"batch": 8, "head_dim": 16, "remat": "full", "attention": "flash"}
    assert trial.repeats * layout.sizes["batch"] * layout.sizes["seq"] == layout_trials.TOKENS


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"pp": 2, "dp": 4}, "pipeline stages"),
        ({"model": "unknown"}, "not published"),
        ({"tp": 4}, "not published"),
        ({"dp": "8"}, "not published"),
        ({"micro_batch": 3}, "cannot be divided"),
        ({"step_seconds": None, "status": "Other Error"}, "another reason"),
    ],
)
def test_a_trial_that_cannot_be_expressed_has_a_reason(
    tmp_path: Path, changed: dict[str, Any], part: str
) -> None:
    (trial,) = read(tmp_path, ROW | changed)
    assert trial.layout is None and part in trial.reason
    trials = layout_trials.judged((trial,), propagate)
    assert (trials.sweeps, trials.others) == ((), {trial.reason: 1})


@pytest.mark.parametrize("text", ["[]", "{}", '{"models": {}, "rows": 3}', "{"])
def test_bad_files(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trials.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"trials\.json"):
        layout_trials.read(path)
    assert command_line.main(["accuracy", "--trials", str(path), "--runs", str(path)]) == 2
    assert command_line.main(["accuracy", "--trials", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.nightly
def test_fits_order_and_place_are_counted(tmp_path: Path) -> None:
    # Tensor parallelism adds transfers to each microbatch.
    slow, fast = ROW | {"tp": 2, "dp": 4, "step_seconds": 3.0}, ROW | {"step_seconds": 2.0}
    wrong = ROW | {"step_seconds": None, "micro_batch": 2}
    huge = ROW | {"model": "too_large", "step_seconds": None}
    rows = read(tmp_path, slow, fast, wrong, huge)
    small, large = layout_trials.judged(rows, propagate).sweeps
    assert (small.known, small.right, small.right_in_jax) == (3, 2, 2)
    # Fewer and larger microbatches are predicted to be faster, and to fit.
    assert (small.ran, small.pairs, small.ordered, small.best) == (2, 1, 1, 2)
    assert (large.known, large.right, large.ran, large.best) == (1, 1, 0, None)
    # If the times were exchanged, the order would be wrong and the fastest not the first one.
    exchanged = [replace(row, seconds={3.0: 2.0, 2.0: 3.0}.get(row.seconds)) for row in rows[:3]]
    (other,) = layout_trials.judged(tuple(exchanged), propagate).sweeps
    assert (other.pairs, other.ordered) == (1, 0) and other.best > 1


@pytest.mark.nightly
def test_the_fragmentation_comes_from_other_models(tmp_path: Path) -> None:
    # Only a sweep of another model says how much is lost: at any share, the trial of `too_large` is right,
    # so the middle one is used for `small`. The trial of `small` fits with any share.
    rows = read(tmp_path, ROW, ROW | {"model": "too_large", "step_seconds": None})
    small, large = layout_trials.judged(rows, propagate).sweeps
    assert (small.fragmentation, large.fragmentation) == (0.5, 0.5)
    (alone,) = layout_trials.judged(rows[:1], propagate).sweeps
    assert alone.fragmentation == 0


@pytest.mark.nightly
def test_gradients_and_the_optimizer_count_once_in_a_step(tmp_path: Path) -> None:
    # Twice the sequences of a microbatch: the same products, and half as many microbatches.
    rows = read(tmp_path, ROW, ROW | {"micro_batch": 2})
    layouts = [row.layout for row in rows if row.layout is not None]
    snapshots = [propagate(layout) for layout in layouts]
    chip = hardware.chip("a100")
    programs = [snapshot.program("train_step") for snapshot in snapshots]
    totals, two = (
        predicted(program, snapshot.mesh, chip).totals
        for snapshot, program in zip(snapshots, programs, strict=True)
    )
    assert totals is not None and two is not None and totals.exposed.keys() == {"data"}
    boundaries = [boundary_seconds(program, chip) for program in programs]
    steps = [
        layout_trials.step_seconds(each, row.repeats, boundary)
        for each, row, boundary in zip((totals, two), rows, boundaries, strict=True)
    ]
    once = boundaries[0] + totals.exposed["data"]
    repeated = totals.matrix + totals.memory - boundaries[0]
    assert steps[0] == pytest.approx(rows[0].repeats * repeated + once)
    # Half as many microbatches read the weights half as often, and start half as many kernels.
    assert 0.9 * steps[0] < steps[1] < steps[0]
