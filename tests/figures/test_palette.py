"""Escaping and cutting of texts, and the contrast of colors."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core import formatting
from inspector.figures import labels, palette

from . import samples


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ((5,), "5"),
        ((0, 4), "0, 4"),
        (tuple(range(64)), "0–63 (64×)"),
        (tuple(range(0, 512, 8)), "0, 8, … 504 (64×)"),
        ((*range(8), *range(32, 40)), "0–7, 32–39 (16×)"),
        ((*range(4), *range(8, 12), *range(16, 20)), "0–3, … 16–19 (12×)"),
        ((0, 3, 7, 9, 20), "0, 3, 7, … 20 (5×)"),
    ],
)
def test_devices_text(devices: tuple[int, ...], text: str) -> None:
    assert formatting.devices_text(devices) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1048576, "1.0 MiB"),
        (1048575, "1.0 MiB"),
        (4194304, "4.0 MiB"),
        (268435456, "256 MiB"),
        (int(73.22 * 2**30), "73.2 GiB"),
        (None, "unknown"),
    ],
)
def test_bytes_text(count: int | None, text: str) -> None:
    assert formatting.bytes_text(count) == text


@given(st.integers(0, 2**62))
def test_bytes_text_is_rounded_correctly(count: int) -> None:
    number, unit = formatting.bytes_text(count).split()
    scale = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    step = 0.1 if "." in number else 1
    assert abs(float(number) * scale - count) <= step / 2 * scale * (1 + 1e-9)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.25, "1.25 s"), (0.0703, "70.3 ms"), (5e-5, "50.0 µs"), (0.99996, "1.00 s"), (26, "26.0 s")],
)
def test_seconds_text(seconds: float, text: str) -> None:
    assert formatting.seconds_text(seconds) == text


def test_spec_text() -> None:
    assert formatting.spec_text((("data",), None)) == "P('data', None)"
    assert formatting.spec_text((("fsdp", "tensor"), None)) == "P(('fsdp', 'tensor'), None)"
    assert formatting.spec_text(()) == "P()"
    assert formatting.spec_text(None) == "unknown"


def test_dimension_text() -> None:
    kernel = samples.kernel()
    assert formatting.dimension_text(kernel, samples.DEFAULT_MESH, 0) == "dim 0 · embed · 1024"
    text = formatting.dimension_text(kernel, samples.DEFAULT_MESH, 1)
    assert text == "dim 1 · hidden · 1024 ÷ 4 over model"


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


@given(st.integers(1, 512))
def test_block_colors_are_distinct_and_contrast_with_text(count: int) -> None:
    colors = palette.colors_of_blocks(count)
    assert len(colors) == count
    if count <= 64:
        assert len(set(colors)) == count
    for color in colors:
        assert palette.contrast(color, palette.text_on(color)) >= 4.5


def test_a_single_block_has_the_grey_of_replicated_specs() -> None:
    everywhere = samples.array("a", (4, 4), (None, None), samples.DEFAULT_MESH)
    styles = palette.styles_of_specs([everywhere], samples.DEFAULT_MESH)
    assert palette.colors_of_blocks(1) == (styles[()].color,) == (palette.REPLICATED,)


def test_a_spec_over_mesh_axes_of_size_one_is_replicated() -> None:
    mesh = samples.mesh(data=1, model=8)
    arrays = [
        samples.array("a", (8,), (("data",),), mesh),
        samples.array("b", (8,), (("model",),), mesh),
    ]
    styles = palette.styles_of_specs(arrays, mesh)
    assert styles[(("data",),)].color == palette.REPLICATED
    assert styles[(("model",),)].color != palette.REPLICATED


def test_equivalent_specs_share_a_style() -> None:
    mesh = samples.mesh(a=2, b=2, c=2, d=2)
    names = ("a", "b", "c", "d")
    arrays = [
        samples.array(f"{first}{second}", (4, 4), ((first,), (second,)), mesh)
        for first in names
        for second in names
        if first != second
    ]
    arrays += [
        samples.array("trailing", (4, 4), (("a",), None), mesh),
        samples.array("bare", (4,), (("a",),), mesh),
    ]
    styles = palette.styles_of_specs(arrays, mesh)
    assert len(styles) == 13
    assert len(set(styles.values())) == 13
    assert palette.styles_of_specs(reversed(arrays), mesh) == styles


def test_spec_colors_contrast_with_text() -> None:
    for color in (*palette.OKABE_ITO, palette.REPLICATED):
        assert palette.contrast(color, palette.text_on(color)) >= 4.5
