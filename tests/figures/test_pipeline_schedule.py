"""The schedule of pipelines against grids written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inspector.figures.pipeline_schedule import in_text, pipeline_schedule
from inspector.prediction.pipelines import work_at
from inspector.records.snapshot import Pipeline

GPIPE = Pipeline(stages=3, microbatches=4, collective="collective-permute.1", axes=("stage",))
# Shoeybi's and MaxText's circular schedule: both devices have two stages, and microbatches go around twice.
CIRCULAR = replace(GPIPE, stages=2, microbatches=2, repeats=2)
GRIDS = [
    (GPIPE, ["0123..", ".0123.", "..0123"]),
    (replace(GPIPE, backward=True), ["..3210", ".3210.", "3210.."]),
    (replace(GPIPE, delay=2), ["0123....", "..0123..", "....0123"]),
    (CIRCULAR, ["0101.", ".0101"]),
]


@pytest.mark.parametrize(("pipeline", "rows"), GRIDS)
def test_each_device_has_each_microbatch_in_its_iteration(pipeline: Pipeline, rows: list[str]) -> None:
    assert pipeline.iterations == len(rows[0])
    assert pipeline.bubble == rows[0].count(".") / len(rows[0])
    for device, row in enumerate(rows):
        done = [work_at(pipeline, device, iteration) for iteration in range(len(row))]
        assert "".join("." if work is None else str(work[0]) for work in done) == row
        assert sorted(work for work in done if work) == sorted(
            (microbatch, turn)
            for microbatch in range(pipeline.microbatches or 0)
            for turn in range(pipeline.repeats)
        )


@pytest.mark.parametrize(("pipeline", "rows"), GRIDS)
def test_pictures_and_texts_show_the_same_cells(pipeline: Pipeline, rows: list[str]) -> None:
    figure = pipeline_schedule([pipeline])
    assert figure is not None
    (cells,) = figure.data
    assert ["".join(text or "." for text in row) for row in cells.text] == rows
    assert [[number == 0 for number in row] for row in cells.z] == [[at == "." for at in row] for row in rows]
    written = in_text([pipeline])
    assert written is not None
    _, *lines = written.splitlines()
    assert ["".join(line.split()[2:]) for line in lines] == rows


def test_the_backward_pass_follows_the_forward_pass() -> None:
    figure = pipeline_schedule([replace(GPIPE, backward=True), GPIPE])
    assert figure is not None
    assert "".join(text or "." for text in figure.data[0].text[0]) == "0123...." + ".3210"


@pytest.mark.parametrize("width_px", [200, 960])
def test_long_loops_are_drawn_to_scale_or_cut(width_px: int) -> None:
    long = replace(GPIPE, stages=64, microbatches=2000)
    figure = pipeline_schedule([long], width_px=width_px)
    assert figure is not None
    assert len(figure.data[0].z[0]) < width_px
    assert figure.data[0].z[0][0] > 0 and figure.data[0].z[0][-1] == 0


def test_unknown_microbatches_have_no_picture() -> None:
    unknown = replace(GPIPE, microbatches=None, trips=6)
    assert unknown.bubble == 2 / 6
    assert pipeline_schedule([unknown]) is None
    assert in_text([unknown]) is None


def test_a_file_can_have_any_numbers() -> None:
    huge = replace(GPIPE, microbatches=10**15, delay=10**9)
    figure = pipeline_schedule([huge])
    assert figure is not None and len(figure.data[0].z[0]) < 960
    assert in_text([huge]) is not None
    for field in ("stages", "repeats"):
        assert pipeline_schedule([replace(GPIPE, **{field: 10**15})]) is None
