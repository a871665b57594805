"""Overview, small multiples, icicle and timings."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from inspector.core import sharding
from inspector.core.snapshot import Array, Mesh, Program, Seconds
from inspector.figures import overview, palette, small_multiples, spec_tree, timings

from . import drawn, samples

STATE = samples.mlp_state()
LARGE_MESH = samples.mesh(data=8, model=64)
NAMED = samples.array(
    "params/<script>alert(1)</script>/<b>w</b>",
    (8, 8),
    (None, None),
    samples.DEFAULT_MESH,
    ("<i>", None),
)


def many(count: int, on: Mesh) -> tuple[Array, ...]:
    """Arrays that do not fold: their paths differ in letters, not numbers."""
    specs = [(None, None), (("data",), None), (None, ("model",)), (("model",), ("data",))]
    letters = "abcdefghij"
    return tuple(
        samples.array(
            "params/" + "/".join(letters[int(digit)] for digit in f"{number:04d}"),
            (512 * (1 + number % 7), 1024),
            specs[number % 4],
            on,
            ("embed", "mlp"),
        )
        for number in range(count)
    )


def tags(text: str) -> set[str]:
    return set(re.findall(r"<([^>]*)>?", text))


@pytest.mark.parametrize("draw", ["overview", "small_multiples", "spec_tree"])
def test_names_from_files_are_drawn_as_text(draw: str) -> None:
    arrays = (*STATE, NAMED)
    figure = {
        "overview": overview.overview,
        "small_multiples": small_multiples.small_multiples,
        "spec_tree": spec_tree.spec_tree,
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
    styles = palette.styles_of_specs(STATE, samples.DEFAULT_MESH)
    assert dots["marker"]["color"] == [
        styles[palette.without_trailing(row.folds[0].first.spec)].color for row in rows
    ]


def test_overview_shows_unknown_sizes_as_unknown() -> None:
    lost = dataclasses.replace(STATE[1], path="params/lost", spec=None, bytes_per_device=None)
    rows = overview.table((*STATE, lost), samples.DEFAULT_MESH)
    assert rows[-1].label == "params/lost" and rows[-1].bytes is None
    shown = drawn.texts(overview.overview((*STATE, lost), samples.DEFAULT_MESH))
    assert "unknown" in shown
    assert any("1 of unknown size" in text for text in shown)


def test_overview_of_1000_arrays_on_512_devices_is_small_and_complete() -> None:
    arrays = many(1000, LARGE_MESH)
    rows = overview.table(arrays, LARGE_MESH)
    assert len(rows) == overview.MOST_ROWS
    assert sum(one.count for row in rows for one in row.folds) == 1000
    assert (
        overview.totals(rows, LARGE_MESH).tolist()
        == [sum(array.bytes_per_device or 0 for array in arrays)] * 512
    )
    assert drawn.size_bytes(overview.overview(arrays, LARGE_MESH)) < 100_000


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
    assert np.count_nonzero(colors != 255) == 8 * 8
    for tile in tiles:
        numbers = small_multiples.color_numbers(tile)
        same_color = numbers[:, None] == numbers[None]
        index = [
            shard.index for shard in sharding.shards(tile.fold.first, samples.DEFAULT_MESH) or ()
        ]
        assert same_color.tolist() == [[one == other for other in index] for one in index]


def test_small_maps_of_60_arrays_on_512_devices_are_one_small_figure() -> None:
    figure = small_multiples.small_multiples(many(60, LARGE_MESH), LARGE_MESH)
    assert figure is not None
    assert len(figure.data) == 3
    assert drawn.size_bytes(figure) < 150_000
    (heatmap,) = drawn.traces(figure, "heatmap")
    assert np.count_nonzero(drawn.matrix(heatmap["z"]) != 255) == 60 * 512


def test_the_icicle_is_sized_by_bytes_and_colored_by_spec() -> None:
    figure = spec_tree.spec_tree(STATE, samples.DEFAULT_MESH)
    assert figure is not None
    (icicle,) = drawn.traces(figure, "icicle")
    values = dict(zip(icicle["ids"], icicle["values"], strict=True))
    children: dict[str, int] = {}
    for name, parent in zip(icicle["ids"], icicle["parents"], strict=True):
        children[parent] = children.get(parent, 0) + values[name]
    assert children[""] == sum(array.bytes or 0 for array in STATE)
    assert all(total == values[parent] for parent, total in children.items() if parent)
    by_path = {array.path: array for array in STATE}
    color_of: dict[str, set[object]] = {}
    for name, color in zip(icicle["ids"], icicle["marker"]["colors"], strict=True):
        if name in by_path:
            spec = palette.without_trailing(by_path[name].spec)
            color_of.setdefault(color, set()).add(spec)
    assert sorted(len(specs) for specs in color_of.values()) == [1, 1, 1]
    legend = {trace["name"]: trace["marker"]["color"] for trace in drawn.traces(figure, "bar")}
    assert set(legend.values()) == set(color_of)
    assert set(legend) == {"P() replicated", "P('model')", "P(None, 'model')"}


def test_the_icicle_can_be_sized_by_bytes_on_each_device() -> None:
    (root, *_) = spec_tree.sectors(STATE, "bytes_per_device")
    assert root.value == sum(array.bytes_per_device or 0 for array in STATE)


def test_an_icicle_of_1000_arrays_joins_small_ones() -> None:
    arrays = many(1000, LARGE_MESH)
    found = spec_tree.sectors(arrays)
    assert found[0].value == sum(array.bytes or 0 for array in arrays)
    parents = {sector.parent for sector in found}
    leaves = [sector for sector in found if sector.id not in parents]
    assert sum(sector.node.arrays for sector in leaves) == 1000
    assert any(sector.node.name.endswith(" smaller") for sector in leaves)
    figure = spec_tree.spec_tree(arrays, LARGE_MESH)
    assert figure is not None
    assert drawn.size_bytes(figure) < 250_000


def test_an_icicle_of_nothing_is_none() -> None:
    assert spec_tree.spec_tree([], samples.DEFAULT_MESH) is None
    lost = [dataclasses.replace(array, bytes=None) for array in STATE]
    assert spec_tree.spec_tree(lost, samples.DEFAULT_MESH) is None


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
    assert any(text.startswith("train_step: median 73.5 ms") for text in drawn.texts(steps))


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
