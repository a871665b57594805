"""Published trials of layouts: what the models can express, and what propagation predicts for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inspector.compare import layout_trials
from inspector.compare.layout_trials import Trial
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout.plan import plan, with_programs
from inspector.media import terminal as command_line
from inspector.producers.abstract import abstract_state
from inspector.producers.propagation.propagate import propagated_programs

MODELS = {
    "small": {"layers": 1, "d_model": 64, "heads": 4, "d_ff": 128},
    "too_large": {"layers": 64, "d_model": 8192, "heads": 64, "d_ff": 22016},
}
ROW: dict[str, Any] = {
    "model": "small", "seq": 2048, "gpus": 8, "tp": 1, "pp": 1, "dp": 8, "micro_batch": 1,
    "act_ckpt": "disabled", "kernel": "torch", "sequence_parallel": None, "step_seconds": 2.0,
}  # fmt: skip


def read(folder: Path, *rows: dict[str, Any]) -> tuple[Trial, ...]:
    path = folder / "trials.json"
    path.write_text(json.dumps({"models": MODELS, "rows": rows}))
    return layout_trials.read(path)


def propagate(layout: Layout) -> Snapshot:
    programs = propagated_programs(layout, origins=False, steps_only=True)
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
    ],
)
def test_a_trial_that_cannot_be_expressed_has_a_reason(
    tmp_path: Path, changed: dict[str, Any], part: str
) -> None:
    (trial,) = read(tmp_path, ROW | changed)
    assert trial.layout is None and part in trial.reason
    found = layout_trials.judged((trial,), propagate)
    assert (found.sweeps, found.others) == ((), {trial.reason: 1})


@pytest.mark.parametrize("text", ["[]", "{}", '{"models": {}, "rows": 3}', "{"])
def test_bad_files(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trials.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"trials\.json"):
        layout_trials.read(path)
    assert command_line.main(["accuracy", "--trials", str(path), "--runs", str(path)]) == 2
    assert command_line.main(["accuracy", "--trials", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_fits_order_and_place_are_counted(tmp_path: Path) -> None:
    # With four sequences at a time, a step has fewer all-reduces of the same gradients.
    slow, fast = ROW | {"step_seconds": 3.0}, ROW | {"micro_batch": 4, "step_seconds": 2.0}
    wrong = ROW | {"step_seconds": None, "micro_batch": 2}
    huge = ROW | {"model": "too_large", "step_seconds": None}
    rows = read(tmp_path, slow, fast, wrong, huge)
    small, large = layout_trials.judged(rows, propagate).sweeps
    assert (small.known, small.right, small.certain, small.certain_right) == (3, 2, 3, 2)
    assert (small.ran, small.pairs, small.ordered, small.best) == (2, 1, 1, 1)
    assert (large.known, large.right, large.ran, large.best) == (1, 1, 0, None)
    # If the times were exchanged, the order would be wrong and the fastest the last one.
    exchanged = [replace(one, seconds={3.0: 2.0, 2.0: 3.0}.get(one.seconds)) for one in rows[:3]]
    (other,) = layout_trials.judged(tuple(exchanged), propagate).sweeps
    assert (other.pairs, other.ordered, other.best) == (1, 0, 3)
