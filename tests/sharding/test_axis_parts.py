"""Parts of mesh axes: their words, their axis, and the color of the axis in figures."""

from __future__ import annotations

import pytest

from inspector.figures import palette
from inspector.hlo.replica_groups import parts_of_axes
from inspector.text.formatting import axis_of, axis_text, mesh_axes_text
from tests.figures import samples


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([[0, 4], [1, 5], [2, 6], [3, 7]], "2 parts of data"),
        ([[0, 2], [1, 3], [4, 6], [5, 7]], "2 parts of each half of data"),
        ([[0, 1], [2, 3], [4, 5], [6, 7]], "2 parts of each of 4 parts of data"),
    ],
)
def test_parts_of_an_axis_are_words_with_the_color_of_the_axis(groups: list[list[int]], words: str) -> None:
    parts = parts_of_axes(tuple(map(tuple, groups)), samples.mesh(data=8))
    assert parts is not None
    assert mesh_axes_text(parts) == words
    assert list(map(axis_of, parts)) == ["data"]
    assert palette.fill_of_axes(parts) == palette.fill_of_axes(("data",))
    assert axis_text(parts[0], lambda name: f"`{name}`") == words.replace("data", "`data`")


@pytest.mark.parametrize("name", ["data", "a:b", "x:(1)", ":(1)2", "d:(1)2x"])
def test_other_names_are_whole_axes(name: str) -> None:
    assert axis_of(name) == axis_text(name) == name
