"""The torus map: every chip at its place, in the color of its index along a mesh axis."""

from __future__ import annotations

import base64
import dataclasses
import re

import numpy as np
import pytest

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Mesh, MeshAxis
from inspector.figures import palette
from inspector.figures.torus_map import torus_map
from tests.figures import drawn, samples
from tests.machines import torus

CUBE = torus.on_torus((4, 4, 4), (True, True, True), (16, 4), torus.by_hosts((4, 4, 4)))
FLAT = torus.on_torus((4, 2), (False, True), (4, 2), torus.by_hosts((4, 2)))


def told(figure) -> list[dict[str, int]]:
    """Return the hover facts, the color number and the place of each chip."""
    (heatmap,) = drawn.traces(figure, "heatmap")
    words = re.findall(r"(?:^|>|, )([^<>,]*?) %\{customdata\[(\d+)\]\}", heatmap["hovertemplate"])
    numbers = heatmap["customdata"]
    shape = tuple(int(part) for part in str(numbers["shape"]).split(","))
    facts = np.frombuffer(_bytes(numbers), dtype=numbers["dtype"]).reshape(shape)
    colors = drawn.matrix(heatmap["z"])
    return [
        {name: int(facts[row, column, int(place)]) for name, place in words}
        | {"color": int(colors[row, column]), "row": row, "column": column}
        for row, column in zip(*np.nonzero(~np.isnan(colors)), strict=True)
    ]


def _bytes(encoded) -> bytes:
    return base64.b64decode(encoded["bdata"])


def notes(figure) -> str:
    return figure.layout.annotations[0].text.replace("<br>", " ")


@pytest.mark.parametrize("mesh", [CUBE, FLAT], ids=["three axes", "two axes"])
@pytest.mark.parametrize("axis", ["data", "model"])
@pytest.mark.parametrize("width", [460, 960])
def test_hover_facts_of_each_chip(mesh: Mesh, axis, width) -> None:
    chips = told(torus_map(mesh, highlight_axis=axis, width_px=width))
    assert sorted(chip["device"] for chip in chips) == sorted(mesh.devices)
    inner = mesh.axes[1].size
    for chip in chips:
        place = mesh.devices.index(chip["device"])
        assert (chip["data"], chip["model"]) == divmod(place, inner)
        assert chip["color"] == chip[axis]
        assert [chip[name] for name in "xyz" if name in chip] == list(mesh.coordinates[place])
        assert chip["host"] == mesh.processes[place]


@pytest.mark.parametrize("width", [460, 960])
def test_neighbors_are_next_to_each_other(width: int) -> None:
    chips = told(torus_map(CUBE, width_px=width))
    for one in chips:
        for other in chips:
            if one["z"] == other["z"]:
                assert one["x"] - other["x"] == one["column"] - other["column"]
                assert one["y"] - other["y"] == one["row"] - other["row"]
            else:
                assert (one["row"], one["column"]) != (other["row"], other["column"])


def test_wrap_around_links_are_marked() -> None:
    figure = torus_map(FLAT, width_px=460)
    assert "y wraps around, x does not" in notes(figure)
    (marks,) = [trace for trace in figure.data if trace.name == "wrap-around"]
    # Along y: one at each end of each of four columns, each of them upright.
    assert list(marks.x).count(None) == 8
    assert all(marks.x[at] == marks.x[at + 1] for at in range(0, len(marks.x), 3))
    assert "x, y and z wrap around" in notes(torus_map(CUBE))
    line = torus.on_torus((4, 2), (False, False), (8,))
    assert "no wrap-around along x or y" in notes(torus_map(line))
    assert not [trace for trace in torus_map(line).data if trace.name == "wrap-around"]


def test_hosts_are_outlined() -> None:
    figure = torus_map(CUBE, width_px=460)
    (boxes,) = [trace for trace in figure.data if trace.name == "host"]
    assert list(boxes.x).count(None) == len(set(CUBE.processes)) == 16
    assert "hosts outlined" in notes(figure)
    alone = dataclasses.replace(CUBE, processes=None)
    assert not [trace for trace in torus_map(alone).data if trace.name == "host"]
    # Hosts that are not rectangular have no outline.
    odd = dataclasses.replace(CUBE, processes=tuple(device % 3 for device in range(64)))
    assert "hosts outlined" not in notes(torus_map(odd))


def test_a_chip_can_have_two_devices() -> None:
    mesh = torus.on_torus((2, 2), (False, False), (4, 2), cores=2)
    figure = torus_map(mesh, highlight_axis="model")
    chips = told(figure)
    assert sorted((chip["x"], chip["y"], chip["core"]) for chip in chips) == sorted(
        (*place, core) for place, core in zip(mesh.coordinates, mesh.cores, strict=True)
    )
    assert all(chip["column"] == 2 * chip["x"] + chip["core"] for chip in chips)
    assert "4 chips of 2 devices" in notes(figure)


def test_gpus_are_grouped_by_node() -> None:
    mesh = Mesh(
        (MeshAxis("data", 2), MeshAxis("model", 8)),
        tuple(range(16)),
        tuple(device // 8 for device in range(16)),
        "NVIDIA H100 80GB HBM3",
        device_order="row-major",
    )
    for these in (mesh, dataclasses.replace(mesh, processes=None)):
        figure = torus_map(these, highlight_axis="model")
        assert {chip["device"]: chip["node"] for chip in told(figure)} == {
            device: device // 8 for device in range(16)
        }
        assert "2 nodes" in notes(figure)


def test_a_mesh_without_places_has_no_figure() -> None:
    assert torus_map(samples.DEFAULT_MESH) is None
    broken = dataclasses.replace(CUBE, coordinates=((0, 0, 0),))
    assert torus_map(broken) is None


def test_an_unknown_mesh_axis_is_rejected() -> None:
    with pytest.raises(InvalidInput, match=r"'tensor'.*'data', 'model'"):
        torus_map(CUBE, highlight_axis="tensor")


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((16, 16, 16), (256, 16)), ((16, 20, 28), (20, 448)), ((4, 4, 560), (4, 4, 4, 2, 70))],
)
@pytest.mark.parametrize("width", [340, 460, 960])
def test_a_pod_is_a_small_figure(shape, sizes, width: int) -> None:
    mesh = torus.on_torus(shape, (True, True, True), sizes)
    figure = torus_map(mesh, width_px=width)
    assert drawn.size_bytes(figure) < 300_000
    assert len(told(figure)) == mesh.size
    assert figure.layout.height < 1500
    assert figure.layout.xaxis.range[1] <= width


def test_hover_facts_of_many_mesh_axes_are_limited() -> None:
    mesh = torus.on_torus((16, 16, 16), (True, True, True), (4096,))
    many = dataclasses.replace(mesh, axes=tuple(MeshAxis(f"a{n}", 2) for n in range(12)))
    figure = torus_map(many, highlight_axis="a7")
    assert drawn.size_bytes(figure) < 300_000
    assert all(chip["color"] == chip["a7"] for chip in told(figure))


def test_black_text_contrasts_with_all_index_colors() -> None:
    for count in (2, 3, 8, 9, 16, 64):
        colors = palette.shades_of_axis("data", count)
        assert {palette.text_on(color) for color in colors} == {palette.BLACK}


def test_names_are_text() -> None:
    axes = (MeshAxis("<i>x</i>", 16), MeshAxis("%{customdata[0]}", 4))
    figure = torus_map(dataclasses.replace(CUBE, axes=axes))
    texts = " ".join(drawn.texts(figure))
    assert "<i>" not in texts and "&lt;i&gt;x" in texts
    (heatmap,) = drawn.traces(figure, "heatmap")
    assert heatmap["hovertemplate"].count("%{customdata[0]}") == 1
