"""Escaping and cutting of texts, and the law of colors."""

from __future__ import annotations

import html
import itertools
import re
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.figures import labels, palette
from inspector.sharding import placement
from inspector.sharding.array_groups import USE_GROUPS

from . import samples


@given(st.text())
def test_escaped_text_has_no_markup_and_keeps_printable_characters(text: str) -> None:
    escaped = labels.escape(text)
    assert not re.search(r"[<>$]|&(?!(amp|lt|gt|#36);)", escaped)
    if text.isprintable():
        assert html.unescape(escaped) == text


@given(st.text(min_size=1, max_size=80), st.integers(3, 40))
def test_cut_texts_have_at_most_the_given_characters(text: str, most: int) -> None:
    for cut in (labels.cut, labels.middle_cut, labels.short_path):
        assert len(cut(text, most)) <= most
        assert cut(text, max(most, len(text))) == text


# Published simulations of complete protanopia, deuteranopia and tritanopia, on linear RGB
# (Machado, Oliveira and Fernandes 2009, https://doi.org/10.1109/TVCG.2009.113, table 1, severity 1.0).
VISION = {
    "complete": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
PAGES = (palette.LIGHT_PAGE[0], palette.DARK_PAGE[0])
COMMON = [
    ("data", "model"),
    ("data", "fsdp", "tensor"),
    ("data", "fsdp", "expert", "tensor"),
    ("replica", "data", "fsdp", "expert", "sequence", "tensor", "stage"),
    ("dp", "tp", "pp", "sp", "ep"),
    ("x", "y", "z"),
    ("a", "b", "c", "d"),
    ("i", "j", "k"),
    ("axis_0", "axis_1", "axis_2", "axis_3"),
]
MESH = samples.mesh(data=2, model=4)


def cielab(color: str, seen: np.ndarray) -> np.ndarray:
    """Return L*, a*, b* of a color for D65, as a reader with this vision sees it."""
    shares = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratios = to_xyz @ np.clip(seen @ linear, 0, 1) / (0.9505, 1.0, 1.089)
    x, y, z = np.where(ratios > 216 / 24389, np.cbrt(ratios), (24389 / 27 * ratios + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(color: str, other: str, seen: np.ndarray) -> float:
    """Return ΔE of CIE 1976. 2.3 is just noticeable."""
    return float(np.linalg.norm(cielab(color, seen) - cielab(other, seen)))


@pytest.mark.parametrize("vision", VISION)
def test_every_reader_can_distinguish_the_hues(vision: str) -> None:
    for color, other in itertools.combinations(palette.HUES.values(), 2):
        assert difference(color, other, VISION[vision]) >= 4 * 2.3, (color, other)


def test_hues_stand_out_on_both_pages() -> None:
    for color, page in itertools.product(palette.HUES.values(), PAGES):
        assert palette.contrast(color, page) >= 3


def test_contrast_is_that_of_the_standard() -> None:
    assert palette.contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert palette.contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("names", COMMON, ids="-".join)
def test_common_axes_of_a_mesh_have_different_hues(names: tuple[str, ...]) -> None:
    assert len({palette.color_of_axis(name) for name in names}) == len(names)


def test_several_axes_are_stripes_of_their_hues() -> None:
    fill = palette.fill_of_axes(("fsdp", "tensor"))
    assert {fill.color, fill.over} == {palette.color_of_axis("fsdp"), palette.color_of_axis("tensor")}
    assert palette.fill_of_axes(("fsdp",)) == palette.Fill(palette.color_of_axis("fsdp"))
    assert palette.fill_of_axes(None) == palette.NOT_KNOWN


@pytest.mark.parametrize(
    ("spec", "shape", "blocks"),
    [
        ((("data",), None), (8, 8), 2),
        ((None, ("model",)), (8, 8), 4),
        ((("data",), ("model",)), (8, 8), 8),
        ((("model", "data"), None), (8, 8), 8),
        ((None, None), (8, 8), 1),
    ],
)
def test_blocks_are_shades_of_the_axes_that_cut_them(spec, shape, blocks: int) -> None:
    placed = placement.place_array(samples.array("a", shape, spec, MESH), MESH)
    colors = palette.colors_of_blocks(placed.block, MESH)
    assert len(colors) == len(set(colors)) == blocks
    for color in colors:
        assert palette.contrast(color, palette.BLACK) >= 4.5
    names = [name for axes in spec for name in axes or ()]
    if len(names) == 1:
        assert set(colors) == set(palette.shades_of(palette.color_of_axis(names[0]), blocks))
    if not names:
        assert colors == (palette.REPLICATED,)


@given(st.integers(1, 5000))
def test_shades_of_many_blocks_run_from_pale_to_strong(count: int) -> None:
    mesh = samples.mesh(fsdp=count)
    colors = palette.colors_of_blocks(np.arange(count), mesh)
    assert len(colors) == count and len(set(colors)) <= palette.SHADES
    lightness = [cielab(color, VISION["complete"])[0] for color in colors]
    assert lightness == sorted(lightness, reverse=True)


def test_a_mesh_of_many_axes_has_colors() -> None:
    mesh = samples.mesh(**{f"axis{number}": 2 if number < 3 else 1 for number in range(90)})
    assert len(set(palette.colors_of_blocks(np.arange(8), mesh))) == 8


@pytest.mark.parametrize("dark", [False, True])
def test_more_is_stronger_from_the_ground_of_the_page(dark: bool) -> None:
    page = PAGES[dark]
    strengths = [palette.contrast(color, page) for _, color in palette.amounts(dark)]
    assert strengths == sorted(strengths)
    assert strengths[0] < 1.3 and strengths[-1] > 12


@pytest.mark.parametrize("dark", [False, True])
def test_text_on_amounts_can_be_read_on_both_pages(dark: bool) -> None:
    heatmap = palette.of_amounts(go.Heatmap(z=[[1]], textfont={"color": palette.BLACK, "size": 9}))
    assert heatmap.meta["dark"]["textfont"] == {"color": palette.WHITE, "size": 9}
    for (_, light), (_, shown) in zip(palette.amounts(), palette.amounts(dark), strict=True):
        text = palette.text_on(light)
        if dark:
            text = palette.WHITE if text == palette.BLACK else palette.BLACK
        assert palette.contrast(shown, text) >= 4.5


def test_groups_in_memory_are_neutral() -> None:
    greys = [palette.color_of_group(group) for group in USE_GROUPS]
    assert len(set(greys)) == len(greys)
    for grey in (*greys, palette.COMPUTE, palette.REPLICATED):
        _, a, b = cielab(grey, VISION["complete"])
        assert np.hypot(a, b) < 10


def test_a_spec_has_one_fill_whatever_else_is_drawn() -> None:
    mesh = samples.mesh(data=1, model=8)
    assert palette.fill_of_spec((("data",),), mesh) == palette.Fill(palette.REPLICATED)
    assert palette.fill_of_spec((("model",), None), mesh) == palette.fill_of_spec((("model",),), None)
    assert palette.fill_of_spec((("model",), None), mesh) != palette.fill_of_spec((None, ("model",)), mesh)
    assert palette.fill_of_spec((None, ("model",)), mesh).color == palette.color_of_axis("model")


def test_no_module_of_figures_has_colors_of_its_own() -> None:
    folder = Path(palette.__file__).parents[1]
    for path in folder.rglob("*.py"):
        if path.name != "palette.py" and "streamlit" not in path.parts:
            assert not re.findall(r'"#[0-9A-Fa-f]{6}"', path.read_text()), path
