"""The board's figures: linked maps, the tree and the matrix of specs."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from inspector.figures.linked_maps import Cut, cut_of, linked_maps, panel
from inspector.figures.spec_tree import spec_tree
from inspector.figures.tree_rows import LayoutColumn
from inspector.records.snapshot import Array, Mesh
from inspector.sharding import placement as sharding
from tests.figures import samples

MESHES = (samples.mesh(data=2, model=4), samples.mesh(data=8), samples.mesh(a=2, b=2, c=2))


def drawn(figure) -> dict:
    """The figure as the browser gets it."""
    return json.loads(figure.to_json())


def maps_of(held: list[tuple[Array | None, Mesh | None]], cut: Cut | None = None, shape=None):
    known = [(array, mesh) for array, mesh in held if array is not None and mesh is not None]
    cut = cut or cut_of(known)
    shape = shape or known[0][0].shape
    panels = [panel(f"layout {n}", *one, cut, shape) for n, one in enumerate(held)]
    return panels, linked_maps(panels, known[0][0].path, cut)


@pytest.mark.parametrize(
    ("shape", "specs"),
    [
        ((16, 32), ((None, ("model",)), (("data",), None), (("a", "c"), ("b",)))),
        ((64,), ((("model",),), (None,), (("b", "a"),))),
        (
            (8, 4, 16),
            ((("data",), None, ("model",)), (("data",), None, None), (None, ("a",), ("b",))),
        ),
        ((), ((), (), ())),
    ],
)
def test_blocks_are_on_the_right_devices_and_axes_match(shape, specs) -> None:
    held = [
        (samples.array("params/w", shape, spec, mesh), mesh) for spec, mesh in zip(specs, MESHES, strict=True)
    ]
    panels, figure = maps_of(held)
    for one in panels:
        placement = sharding.place_array(one.array, one.mesh)
        grid = one.grid
        pieces = [side.cuts[0] if side.cuts else ((0, 1),) for side in (grid.rows, grid.columns)]
        dimensions = [side.dimensions[0] if side.dimensions else None for side in (grid.rows, grid.columns)]
        for row, column in itertools.product(*(range(len(each)) for each in pieces)):
            # The middle of each cell, and the devices that hold that element, one by one.
            element = np.array([grid.at.get(d, 0) for d in range(len(shape))], dtype=int)
            for dimension, piece, at in zip(dimensions, pieces, (row, column), strict=True):
                if dimension is not None:
                    element[dimension] = (piece[at][0] + piece[at][1]) // 2
            holders = tuple(
                device
                for place, device in enumerate(one.mesh.devices)
                if (placement.starts[place] <= element).all() and (element < placement.stops[place]).all()
            )
            assert grid.holders[grid.block[row, column]] == holders
    layout = drawn(figure)["layout"]
    axes = [name for name in layout if name.startswith("xaxis")]
    assert len(axes) == 3
    for name in axes[1:]:
        assert layout[name]["matches"] == "x"
        assert layout[name.replace("x", "y", 1)]["matches"] == "y"
    spans = [layout[name]["domain"] for name in axes]
    assert all(0 <= low < high <= 1 for low, high in spans)


def test_a_panel_without_a_map_says_why() -> None:
    mesh = samples.DEFAULT_MESH
    whole = samples.kernel()
    flat = samples.array(whole.path, (1024,), (None,), mesh)
    unknown = replace(whole, shape=None, shard_shape=None)
    panels, figure = maps_of([(whole, mesh), (None, mesh), (whole, None), (flat, mesh), (unknown, mesh)])
    reasons = ["", "no array", "mesh is unknown", "has 1 dimension", "shape is unknown"]
    for one, reason in zip(panels, reasons, strict=True):
        assert reason in one.absent and bool(one.absent) == bool(reason)
    said = " ".join(one["text"] for one in drawn(figure)["layout"]["annotations"]).replace("<br>", " ")
    assert all(panel.absent in said for panel in panels)


def test_other_dimensions_are_sliced_at_the_given_index() -> None:
    mesh = samples.mesh(data=2, model=4)
    array = samples.array("params/w", (8, 4, 16), (("data",), ("model",), None), mesh)
    first, _ = maps_of([(array, mesh)], Cut(1, 2, {0: 0}))
    last, _ = maps_of([(array, mesh)], Cut(1, 2, {0: 7}))
    held = [
        set(itertools.chain(*(one[0].grid.holders[n] for n in one[0].grid.block.flat)))
        for one in (first, last)
    ]
    assert held == [{0, 1, 2, 3}, {4, 5, 6, 7}]


def test_names_are_text_in_every_figure() -> None:
    mesh = samples.DEFAULT_MESH
    array = samples.array(samples.HOSTILE_PATH, (8,), (("data",),), mesh)
    snapshot = samples.planned(mesh, array)
    name = "<img src=x onerror=alert(2)>"
    cut = cut_of([(array, mesh)])
    figures = [
        linked_maps(
            [panel(name, array, mesh, cut, (8,)), panel(name, None, mesh, cut, (8,))],
            samples.HOSTILE_PATH,
            cut,
        ),
        spec_tree([LayoutColumn(name, snapshot.arrays)], None),
    ]
    for figure in figures:
        assert "<img" not in figure.to_json()
        assert "$x" not in figure.to_json()
        assert "&lt;img" in json.dumps(drawn(figure)).replace("\\u003c", "<")


def test_a_row_without_maps_is_low() -> None:
    array = samples.array("params/w", (1024, 1024), (None, ("model",)), samples.DEFAULT_MESH)
    held = [(array, samples.DEFAULT_MESH)] * 2
    cut = cut_of(held)
    of = [panel(f"layout {n}", *one, cut, array.shape) for n, one in enumerate(held)]
    none = [panel(f"none {n}", None, samples.DEFAULT_MESH, cut, array.shape) for n in range(2)]
    two, four, full = (
        linked_maps(panels, array.path, cut, width_px=520) for panels in (of, of + none, of + of)
    )
    assert full.layout.height - two.layout.height > 2 * (four.layout.height - two.layout.height)
    right = max(axis.domain[1] for axis in (two.layout.xaxis, two.layout.xaxis2))
    assert (1 - right) * 516 >= 10, "half of the label 1024 is right of the map"
    assert two.layout.xaxis.ticktext[-1] == "1024"
