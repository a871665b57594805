"""Overview, small multiples and timings."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from inspector.core import sharding
from inspector.core.snapshot import Program, Seconds
from inspector.figures import overview, palette, small_multiples, timings
from inspector.figures.spec_tree import spec_tree
from inspector.figures.tree_rows import Column

from . import drawn, samples

STATE = samples.mlp_state()
NAMED = samples.array(
    "params/<script>alert(1)</script>/<b>w</b>",
    (8, 8),
    (None, None),
    samples.DEFAULT_MESH,
    ("<i>", None),
)


def tags(text: str) -> set[str]:
    return set(re.findall(r"<([^>]*)>?", text))


@pytest.mark.parametrize("draw", ["overview", "small_multiples", "spec_tree"])
def test_names_from_files_are_drawn_as_text(draw: str) -> None:
    arrays = (*STATE, NAMED)
    figure = {
        "overview": overview.overview,
        "small_multiples": small_multiples.small_multiples,
        "spec_tree": lambda arrays, on: spec_tree([Column("", arrays)], on),
    }[draw](arrays, samples.DEFAULT_MESH)
    assert figure is not None
    # A click returns the path itself, which is never drawn.
    shown = set(drawn.texts(figure)) - {NAMED.path}
    assert any("&lt;script&gt;" in text for text in shown)
    for text in shown:
        assert tags(text) <= {"br", "b", "/b", "extra", "/extra"}, text


def test_overview_rows_are_sums_of_shards() -> None:
    uneven_mesh = samples.mesh(x=4)
    arrays = (
        samples.uneven(uneven_mesh),
        samples.array("params/w0", (8, 4), (("x",), None), uneven_mesh),
        samples.array("params/w1", (8, 4), (("x",), None), uneven_mesh),
        samples.array("params/scale", (16,), (None,), uneven_mesh),
    )
    rows = overview.table(arrays, uneven_mesh)
    counted = dict.fromkeys(uneven_mesh.devices, 0)
    for array in arrays:
        for shard in sharding.shards(array, uneven_mesh) or ():
            counted[shard.device] += 4 * int(np.prod([stop - start for start, stop in shard.index]))
    totals = overview.totals(rows, uneven_mesh)
    assert dict(zip(uneven_mesh.devices, totals.tolist(), strict=True)) == counted
    by_label = {row.label: row.bytes.tolist() for row in rows if row.bytes is not None}
    assert by_label == {
        "output/uneven": [72, 72, 72, 24],
        "params/w{0,1} ×2": [64, 64, 64, 64],
        "params/scale": [64, 64, 64, 64],
    }
    (bar,) = drawn.traces(overview.overview(arrays, uneven_mesh), "bar")
    assert bar["y"] == [200, 200, 200, 152]


def test_overview_rows_are_ordered_by_bytes_and_name_their_arrays() -> None:
    rows = overview.table(STATE, samples.DEFAULT_MESH)
    assert [row.most for row in rows] == sorted((row.most for row in rows), reverse=True)
    figure = overview.overview(STATE, samples.DEFAULT_MESH)
    (dots,) = [trace for trace in drawn.traces(figure, "scatter") if trace.get("customdata")]
    assert dots["customdata"] == [row.folds[0].first.path for row in rows]
    assert dots["marker"]["color"] == [
        palette.fill_of_spec(row.folds[0].first.spec, samples.DEFAULT_MESH).color for row in rows
    ]


def test_overview_shows_unknown_sizes_as_unknown() -> None:
    lost = dataclasses.replace(STATE[1], path="params/lost", spec=None, bytes_per_device=None)
    rows = overview.table((*STATE, lost), samples.DEFAULT_MESH)
    assert rows[-1].label == "params/lost" and rows[-1].bytes is None
    shown = drawn.texts(overview.overview((*STATE, lost), samples.DEFAULT_MESH))
    assert "unknown" in shown
    assert any("1 of unknown size" in text for text in shown)


def test_overview_of_1000_arrays_on_512_devices_is_small_and_complete() -> None:
    arrays = samples.many(1000, samples.LARGE_MESH)
    rows = overview.table(arrays, samples.LARGE_MESH)
    assert len(rows) == overview.MOST_ROWS
    assert sum(one.count for row in rows for one in row.folds) == 1000
    assert (
        overview.totals(rows, samples.LARGE_MESH).tolist()
        == [sum(array.bytes_per_device or 0 for array in arrays)] * 512
    )
    assert drawn.size_bytes(overview.overview(arrays, samples.LARGE_MESH)) < 100_000


def test_equal_runs() -> None:
    mesh = samples.mesh(x=100)
    size = np.repeat([5, 7, 7, 5], 25)
    rows = [overview.Row("a", (), size), overview.Row("b", (), np.full(100, 3))]
    assert overview.equal_runs(rows, mesh.size) == [(0, 25), (25, 75), (75, 100)]


def test_small_maps_color_devices_by_block() -> None:
    figure = small_multiples.small_multiples(STATE, samples.DEFAULT_MESH)
    assert figure is not None
    tiles = small_multiples.tiles(STATE, samples.DEFAULT_MESH)
    selectable = drawn.points(figure)
    assert [path for _, _, path, _ in selectable] == [tile.fold.first.path for tile in tiles]
    (heatmap,) = drawn.traces(figure, "heatmap")
    colors = drawn.matrix(heatmap["z"])
    # Eight maps of 2 × 4 devices, and nothing else but gaps.
    assert np.count_nonzero(colors) == 8 * 8
    for tile in tiles:
        numbers = np.array(palette.colors_of_blocks(tile.block, samples.DEFAULT_MESH))[tile.block]
        same_color = numbers[:, None] == numbers[None]
        index = [shard.index for shard in sharding.shards(tile.fold.first, samples.DEFAULT_MESH) or ()]
        assert same_color.tolist() == [[one == other for other in index] for one in index]


def test_small_maps_of_60_arrays_on_512_devices_are_one_small_figure() -> None:
    figure = small_multiples.small_multiples(samples.many(60, samples.LARGE_MESH), samples.LARGE_MESH)
    assert figure is not None
    assert len(figure.data) == 3
    assert drawn.size_bytes(figure) < 150_000
    (heatmap,) = drawn.traces(figure, "heatmap")
    assert np.count_nonzero(drawn.matrix(heatmap["z"])) == 60 * 512


def test_timings_show_every_phase_and_step() -> None:
    snapshot = samples.snapshot()
    phases, steps = timings.phases(snapshot.programs), timings.steps(snapshot.programs)
    assert phases is not None and steps is not None
    drawn_phases = sorted(value for bar in drawn.traces(phases, "bar") for value in bar["x"])
    assert drawn_phases == sorted(
        value
        for program in snapshot.programs
        for value in (program.seconds.lower, program.seconds.compile, program.seconds.first)
    )
    (train, apply) = drawn.traces(steps, "scatter")
    assert train["x"] == pytest.approx(snapshot.program("train_step").seconds.steps)
    assert apply["x"] == pytest.approx(snapshot.program("apply").seconds.steps)
    for figure in (phases, steps):
        assert "emulated on this machine" in drawn.spec(figure)["layout"]["title"]["text"]
    assert any(text.startswith("Train step: median 73.5 ms") for text in drawn.texts(steps))


def test_compile_times_are_not_called_emulated() -> None:
    ran = samples.snapshot()
    compiled = dataclasses.replace(
        ran, source=dataclasses.replace(ran.source, kind="tpu", target="tpu:v5e:4x4")
    )
    only = [Program("train_step", seconds=Seconds(0.1, 0.2))]
    figure = timings.phases(only, timings.where(compiled))
    said = " ".join([drawn.spec(figure)["layout"]["title"]["text"], *drawn.texts(figure)])
    assert "nothing was run" in said and "to lower and to compile" in said
    assert "emulated" not in said and "first run" not in said
    assert timings.where(ran) == timings.EMULATED


def test_untimed_programs_have_no_figure() -> None:
    assert timings.phases([Program("train_step")]) is None
    assert timings.steps([Program("train_step", seconds=Seconds(0.1, 0.2))]) is None
    unknown = timings.phases([Program("train_step", seconds=Seconds(lower=0.1))])
    assert unknown is not None
    assert sum(len(bar["x"]) for bar in drawn.traces(unknown, "bar")) == 1
