"""The losses of a run and the bytes that are alive after it."""

from __future__ import annotations

from dataclasses import replace

from inspector.answers import train_state
from inspector.answers.section import Folded, Table
from inspector.records.snapshot import LiveBytes
from tests.figures import samples


def test_the_losses_that_are_not_finite_are_counted() -> None:
    assert train_state.loss_text([3.0, 2.0, 1.0]) == "from 3 to 1 in 2 further steps"
    assert train_state.loss_text([3.0, None]) == "from 3 to 3 in 1 further step; 1 not finite, left out"
    assert train_state.loss_text([None]) == "no loss is finite"


def test_bytes_without_an_owner_come_last() -> None:
    live = (
        LiveBytes(0, train_state.NOBODY, 1, 8),
        *(LiveBytes(device, "params", 2, 64 + device) for device in range(2)),
        LiveBytes(1, "batch", 1, 16),
    )
    (table, _) = train_state.training(replace(samples.snapshot(), live=live, programs=()))
    assert isinstance(table, Table)
    assert [row[1:] for row in table.rows] == [(65, 129), (16, 16), (8, 8)]
    assert table.rows[-1][0] == "no known owner"


def test_every_loss_is_at_its_step() -> None:
    found = samples.snapshot()
    program = found.programs[0]
    step = replace(program, name="train_step", losses=(3.0, None))
    (losses,) = train_state.training(replace(found, live=None, programs=(step,)))
    assert isinstance(losses, Folded)
    (table,) = losses.blocks
    assert isinstance(table, Table) and table.rows == ((0, "3"), (1, "not finite"))
