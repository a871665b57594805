"""The bars of operation times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.figures.timings import IDLE, operation_times, steps
from inspector.records.snapshot import OperationTime, Program, Seconds, Trace
from inspector.records.statistics import statistics
from inspector.text.formatting import seconds_text
from tests.figures import drawn

TRACE = Trace(
    steps=3,
    seconds=0.1,
    operations=(
        OperationTime("dot", 24, 0.36),
        OperationTime("all-reduce", 48, 0.24),
        OperationTime("while", 8, 0.02),
        OperationTime("copy", 8, 0.00001),
    ),
)


@pytest.mark.parametrize("width", [340, 480, 960, 1040])
def test_each_bar_has_its_share_and_seconds(width: int) -> None:
    figure = operation_times(TRACE, 8, width_px=width)
    (bar,) = figure.data
    assert list(bar.text) == [
        "45.0%, 15.0 ms", "30.0%, 10.0 ms", "2.5%, 833 µs", "below 0.1%, 417 ns", "22.5%, 7.50 ms",
    ]  # fmt: skip
    assert figure.layout.yaxis.ticktext[-1] == IDLE
    assert "on emulated devices" in figure.layout.title.text
    assert figure.layout.width == width


@given(
    st.lists(st.tuples(st.text("abcdefgh-", min_size=1), st.floats(0, 0.01)), max_size=30),
    st.integers(1, 9),
)
def test_bars_add_up_to_the_devices_time(kinds: list[tuple[str, float]], devices: int) -> None:
    operations = tuple(
        OperationTime(kind, 1, seconds) for kind, seconds in sorted(kinds, key=lambda kind: -kind[1])
    )
    figure = operation_times(Trace(1, 0.4, operations), devices)
    if not operations:
        assert figure is None
        return
    assert sum(figure.data[0].x) == pytest.approx(0.4 * devices)
    assert len(figure.data[0].x) <= 13


def test_a_note_explains_the_time_of_collectives() -> None:
    said = " ".join(drawn.texts(operation_times(TRACE, 8, width_px=960)))
    assert "waiting for other devices" in said
    alone = Trace(3, 0.1, TRACE.operations[:1])
    assert "waiting for other devices" not in " ".join(drawn.texts(operation_times(alone, 8)))


def test_names_are_text() -> None:
    hostile = Trace(1, 1.0, (OperationTime("<b>dot</b>", 1, 0.5),))
    assert not any("<b>dot" in text for text in drawn.texts(operation_times(hostile, 1)))


def test_no_time_is_no_figure() -> None:
    assert operation_times(Trace(3, 0.0, TRACE.operations), 8) is None


def test_the_interval_of_steps_is_written_where_its_letters_fit() -> None:
    times = tuple(0.0225 + 0.001 * number for number in range(20))
    program = Program("train_step", seconds=Seconds(steps=times))
    said = " ".join(drawn.texts(steps([program], width_px=400)))
    spread = statistics(times)
    assert seconds_text(spread.low) in said and seconds_text(spread.high) in said
