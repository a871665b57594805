"""The loss curve."""

from __future__ import annotations

from inspector.figures.train_state import loss_curve, loss_note


def test_every_loss_is_at_its_step() -> None:
    figure = loss_curve([3.0, 2.0, None, 1.5])
    (curve,) = figure.data
    assert list(curve.x) == [0, 1, 2, 3] and list(curve.y) == [3.0, 2.0, None, 1.5]


def test_the_note_counts_losses_that_are_not_finite() -> None:
    assert loss_note([3.0, 2.0, 1.0]) == "from 3 to 1 in 2 further steps"
    assert loss_note([3.0, None]) == "from 3 to 3 in 1 further step; 1 not finite, left out"
    assert loss_note([None]) == "no loss is finite"


def test_no_losses_is_no_figure() -> None:
    assert loss_curve([]) is None
