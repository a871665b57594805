"""Escaping and cutting of texts, and the contrast of colors."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from inspector.figures import labels, palette

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
