"""Block map and mesh map, checked element by element and device by device."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.figures.block_grid import Arrangement, block_grid, split_dimensions, why_no_map
from inspector.figures.block_map import block_map, layout
from inspector.figures.mesh_layout import mesh_grid
from inspector.figures.mesh_map import mesh_map
from inspector.records.snapshot import Array, Mesh, Shard
from inspector.sharding import placement as sharding
from tests.examples import costly

from . import drawn, samples


@st.composite
def placed(draw: st.DrawFn) -> tuple[Array, Mesh]:
    """An array of rank 0 to 5, split over some axes of a mesh of 1 to 4 axes."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    mesh = samples.mesh(**dict(zip("abcd", sizes, strict=False)))
    rank = draw(st.integers(0, 5))
    free = draw(st.permutations(list(mesh.axis_names)))
    spec = []
    for _ in range(rank):
        count = draw(st.integers(0, min(2, len(free))))
        spec.append(tuple(free[:count]) or None)
        free = free[count:]
    shape = tuple(mesh.ways(axes) * draw(st.integers(1, 3)) for axes in spec)
    return samples.array("params/a", shape, tuple(spec), mesh), mesh


def owner_of_elements(array: Array, mesh: Mesh) -> np.ndarray:
    """For every element the first device that holds it, found by marking each device's slice."""
    owner = np.full(array.shape, -1)
    shards = sharding.shards(array, mesh)
    assert shards is not None
    for shard in reversed(shards):
        owner[tuple(slice(start, stop) for start, stop in shard.index)] = shard.device
    return owner


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("sizes", [(4, 16, 8), (64, 16), (4, 128, 8), (64, 64), (96, 96), (4096,)], ids=str)
def test_a_mesh_of_thousands_of_devices_has_a_limited_height(sizes: tuple[int, ...]) -> None:
    mesh = samples.mesh(**dict(zip("abc", sizes, strict=False)))
    rows = 4 * sizes[0]
    figure = mesh_map(samples.array("params/a", (rows,), (("a",),), mesh), mesh)
    assert figure.layout.height < 1_500
    lows = [bottom - top for _, _, top, bottom, _ in drawn.cells(figure)]
    assert min(lows) > 4, "lower than the line between processes"


@given(placed())
def test_the_grid_covers_each_element_once(case: tuple[Array, Mesh]) -> None:
    array, mesh = case
    grid = block_grid(array, mesh)
    assert grid is not None
    owner = owner_of_elements(array, mesh)
    counted = np.zeros(array.shape, dtype=int)
    for row, row_ranges in enumerate(itertools.product(*grid.rows.cuts)):
        for column, column_ranges in enumerate(itertools.product(*grid.columns.cuts)):
            window: list[slice] = [slice(None)] * len(array.shape)
            laid_out = grid.rows.dimensions + grid.columns.dimensions
            for dimension, (start, stop) in zip(laid_out, row_ranges + column_ranges, strict=True):
                window[dimension] = slice(start, stop)
            counted[tuple(window)] += 1
            devices = grid.holders[grid.block[row, column]]
            assert set(np.unique(owner[tuple(window)])) == {devices[0]}
    assert np.all(counted == 1)


@costly()
@given(placed())
def test_areas_are_proportional_to_blocks(case: tuple[Array, Mesh]) -> None:
    array, mesh = case
    figure = block_map(array, mesh)
    assert figure is not None
    areas: dict[float, float] = {}
    for left, right, top, bottom, block in drawn.cells(figure):
        areas[block] = areas.get(block, 0) + (right - left) * (bottom - top)
    placement = sharding.place_array(array, mesh)
    assert placement is not None
    assert sorted(areas) == list(range(placement.blocks))
    # Even blocks, so even areas; positions are rounded to hundredths of a pixel.
    assert max(areas.values()) == pytest.approx(min(areas.values()), rel=0.02)


@pytest.mark.nightly
@given(placed())
def test_devices_share_a_color_if_they_hold_the_same_index(case: tuple[Array, Mesh]) -> None:
    array, mesh = case
    figure = mesh_map(array, mesh)
    assert figure is not None
    shards = {shard.device: shard for shard in sharding.shards(array, mesh) or ()}
    cells = drawn.cells(figure)
    color = {device: drawn.at(cells, x, y) for x, y, device, _ in drawn.points(figure)}
    assert sorted(color) == list(mesh.devices)
    for one, other in itertools.combinations(mesh.devices[:40], 2):
        assert (color[one] == color[other]) == (shards[one].index == shards[other].index)


@pytest.mark.nightly
@given(placed())
def test_both_maps_use_the_same_colors(case: tuple[Array, Mesh]) -> None:
    array, mesh = case
    of_blocks, of_devices = block_map(array, mesh), mesh_map(array, mesh)
    assert of_blocks is not None and of_devices is not None
    placement = sharding.place_array(array, mesh)
    assert placement is not None
    device_cells, block_cells = drawn.cells(of_devices), drawn.cells(of_blocks)
    for x, y, device, _ in drawn.points(of_devices):
        held = placement.block[mesh.devices.index(device)]
        assert drawn.at(device_cells, x, y) == held
    for x, y, block, _ in drawn.points(of_blocks):
        assert drawn.at(block_cells, x, y) == block
    scales = {
        str((trace["colorscale"], trace["zmin"], trace["zmax"]))
        for figure in (of_blocks, of_devices)
        for trace in drawn.traces(figure, "heatmap")
    }
    assert len(scales) == 1


def test_the_default_kernel_has_four_column_blocks() -> None:
    grid = block_grid(samples.kernel(), samples.DEFAULT_MESH)
    assert grid is not None
    assert grid.rows.cuts == (((0, 1024),),)
    assert grid.columns.cuts == (((0, 256), (256, 512), (512, 768), (768, 1024)),)
    assert grid.block.tolist() == [[0, 1, 2, 3]]
    assert grid.holders == ((0, 4), (1, 5), (2, 6), (3, 7))
    figure = block_map(samples.kernel(), samples.DEFAULT_MESH)
    assert figure is not None
    shown = drawn.texts(figure)
    for text in ("devices<br>0, 4", "devices<br>3, 7", "→ dim 1 · hidden · 1024 ÷ 4 over model"):
        assert text in shown
    assert drawn.spec(figure)["layout"]["xaxis"]["ticktext"] == ["0", "256", "512", "768", "1024"]


def test_the_default_kernel_is_drawn_to_scale() -> None:
    figure = block_map(samples.kernel(), samples.DEFAULT_MESH)
    assert figure is not None
    cells = drawn.cells(figure)
    width = max(cell[1] for cell in cells) - min(cell[0] for cell in cells)
    height = max(cell[3] for cell in cells) - min(cell[2] for cell in cells)
    assert width == pytest.approx(height, rel=1e-3)
    assert drawn.spec(figure)["layout"]["yaxis"]["scaleanchor"] == "x"


@pytest.mark.parametrize("shape", [(8, 1024), (32000, 64)])
def test_an_array_that_is_not_drawn_to_scale_says_so(shape: tuple[int, ...]) -> None:
    array = samples.array("a", shape, (("model",), None), samples.DEFAULT_MESH)
    figure = block_map(array, samples.DEFAULT_MESH)
    assert figure is not None
    assert "scaleanchor" not in drawn.spec(figure)["layout"]["yaxis"]
    assert any("not to scale" in text for text in drawn.texts(figure))


def test_hover_text_of_a_device() -> None:
    mesh = samples.mesh(processes=2, data=2, model=4)
    figure = mesh_map(samples.kernel(mesh), mesh)
    assert figure is not None
    hover = {device: text for _, _, device, text in drawn.points(figure)}[6]
    assert hover == (
        "<b>device 6 · data 1, model 2</b><br>block 2 of 4<br>index [0:1024, 512:768]<br>"
        "shard 1024×256 float32, 1.0 MiB (1,048,576 bytes)<br>replica 1 of 2, also on 2<br>process 1"
    )


def test_whole_and_sliced_dimensions() -> None:
    mesh = samples.mesh(pipe=2, model=4)
    spec = (("pipe",), None, ("model",))
    array = samples.array("a", (4, 16, 16), spec, mesh, ("layer", "embed", "hidden"))
    assert split_dimensions(array, mesh) == (0, 2)
    whole = block_map(array, mesh)
    assert whole is not None
    assert any("not drawn: dim 1 · embed · 16, whole" in text for text in drawn.texts(whole))
    grid = block_grid(array, mesh, Arrangement(at=((0, 3),)))
    assert grid is not None
    assert (grid.rows.dimensions, grid.columns.dimensions) == ((1,), (2,))
    assert grid.block.tolist() == [[4, 5, 6, 7]]
    default_slice = block_grid(array, mesh, Arrangement((1,), (2,)))
    assert default_slice is not None
    assert default_slice.at == {0: 0}
    assert default_slice.block.tolist() == [[0, 1, 2, 3]]


def test_uneven_blocks_are_to_scale() -> None:
    mesh = samples.mesh(x=4)
    figure = block_map(samples.uneven(mesh), mesh)
    assert figure is not None
    heights = {block: bottom - top for _, _, top, bottom, block in drawn.cells(figure)}
    unit = heights[3]
    assert [heights[block] / unit for block in range(4)] == pytest.approx([3, 3, 3, 1], rel=0.01)


def test_arrays_without_a_map_say_why() -> None:
    mesh = samples.mesh(x=4)
    whole = samples.array("params/a", (6, 4), (None, None), mesh)
    cases = {
        "is unknown": dataclasses.replace(whole, spec=None),
        "size 6 is not divisible by 4 \\(x\\)": dataclasses.replace(whole, spec=(("x",), None)),
        "no shard on some devices": dataclasses.replace(whole, shards=(Shard(0, ((0, 6), (0, 4)), 0),)),
        "overlap": dataclasses.replace(
            whole, shards=tuple(Shard(d, ((0, 3 + d % 2), (0, 4)), 0) for d in range(4))
        ),
        "no elements": samples.array("params/a", (0, 4), (None, None), mesh),
    }
    for reason, array in cases.items():
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(why_no_map(array, mesh))
        assert block_map(array, mesh) is None
        assert mesh_map(array, mesh) is None
    assert why_no_map(whole, mesh) is None


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("sizes", [(512,), (2, 256), (256, 2), (8, 64), (2, 4, 8, 8)])
def test_512_devices_are_a_readable_small_figure(sizes: tuple[int, ...]) -> None:
    mesh = samples.mesh(**dict(zip("abcd", sizes, strict=False)))
    spec = (tuple(mesh.axis_names), None)
    array = samples.array("params/a", (4096, 4096), spec, mesh)
    for draw in (block_map, mesh_map):
        figure = draw(array, mesh, width_px=520)
        assert figure is not None
        assert len(drawn.points(figure)) == 512
        layout = drawn.spec(figure)["layout"]
        assert layout["height"] <= 900
        assert drawn.size_bytes(figure) < 200_000
    labelled = [text for text in drawn.texts(block_map(array, mesh)) if text.isdigit()]
    assert set(map(str, range(512))) <= set(labelled)


def test_a_replicated_array_merges_512_devices_into_one_label() -> None:
    mesh = samples.mesh(data=8, model=64)
    figure = block_map(samples.array("params/a", (64,), (None,), mesh), mesh)
    assert figure is not None
    assert "devices<br>0–511 (512×)" in drawn.texts(figure)


def test_a_highlight_fades_the_other_blocks() -> None:
    for draw in (block_map, mesh_map):
        figure = draw(samples.kernel(), samples.DEFAULT_MESH, highlight=2)
        assert figure is not None
        for heatmap in drawn.traces(figure, "heatmap"):
            blocks = set(np.unique(drawn.matrix(heatmap["z"])[~np.isnan(drawn.matrix(heatmap["z"]))]))
            faint = heatmap["colorscale"][0][1].startswith("rgba")
            assert blocks == ({0, 1, 3} if faint else {2})


def test_names_from_files_are_drawn_as_text() -> None:
    mesh = samples.mesh(**{"<b>data</b>": 2, "<script>": 2})
    array = samples.array(
        "params/<a href='x'>$w$</a>", (4, 4), (("<b>data</b>",), ("<script>",)), mesh, ("<i>", None)
    )
    for draw in (block_map, mesh_map):
        figure = draw(array, mesh, width_px=900)
        assert figure is not None
        for text in drawn.texts(figure):
            tags = set(text.replace(">", "<").split("<")[1::2])
            assert tags <= {"br", "b", "/b", "extra", "/extra"}
            if "data" in text:
                assert "&lt;b&gt;data&lt;/b&gt;" in text


def test_figures_set_no_ground_and_no_font_color() -> None:
    for draw in (block_map, mesh_map):
        figure = draw(samples.kernel(), samples.DEFAULT_MESH)
        assert figure is not None
        layout = drawn.spec(figure)["layout"]
        assert "layout" not in layout["template"]
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
        assert "font" not in layout
        assert "color" not in layout["title"]["font"]
        assert all("color" not in note["font"] for note in layout["annotations"])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_every_device_has_one_place_in_the_mesh(sizes: list[int]) -> None:
    mesh = samples.mesh(**dict(zip("abcd", sizes, strict=False)))
    grid = mesh_grid(mesh)
    assert sorted(grid.position.ravel().tolist()) == list(range(math.prod(sizes)))
    # Along a row only the column axes move, along a column only the row axes.
    place = np.array(np.unravel_index(grid.position, mesh.shape))
    assert np.all(place[list(grid.rows)] == place[list(grid.rows)][..., :1])
    assert np.all(place[list(grid.columns)] == place[list(grid.columns)][:, :1])


def test_a_remark_names_the_blocks_per_line() -> None:
    mesh = samples.mesh(model=256)
    grid = block_grid(samples.array("a", (4, 1024), (None, ("model",)), mesh), mesh)
    assert grid is not None
    plan = layout(grid, 480)
    assert plan.remark == f"wrapped, {plan.sheet.line} blocks per line"
    # Line by line, the blocks are in order.
    assert grid.block.ravel()[plan.sheet.cells.ravel()].tolist() == list(range(256))
