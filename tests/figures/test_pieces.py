"""The figures of pieces: every number once, in the color of its original block."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import plotly.graph_objects as go
import pytest

from inspector.figures import palette
from inspector.figures import pieces as figures
from inspector.guides import assembly as assemblies
from inspector.guides.assembly import Assembled, Assembly, pieces
from inspector.learn.assemble import make_array
from tests.figures import drawn


def made(fields: dict[str, str]) -> tuple[Assembly, Assembled]:
    asked = assemblies.parse(fields).unwrap()
    return asked, make_array(asked)


def numbers(figure: go.Figure) -> list[tuple[str, int]]:
    """(text, color number) of every cell that is drawn."""
    found = []
    for trace in drawn.traces(figure, "heatmap"):
        z = drawn.matrix(trace["z"])
        for row, texts in enumerate(trace["text"]):
            for column, text in enumerate(texts):
                if not np.isnan(z[row, column]):
                    found.append((text, int(z[row, column])))
    return found


def labels_of(figure: go.Figure) -> list[str]:
    (trace,) = [one for one in drawn.traces(figure, "scatter") if one["mode"] == "text"]
    return trace["text"]


def outlines(figure: go.Figure) -> list[str]:
    return [shape["line"]["color"] for shape in drawn.spec(figure)["layout"].get("shapes", [])]


@pytest.mark.parametrize("way", assemblies.WAYS)
def test_every_number_is_drawn_once_in_the_color_of_its_block(way: str) -> None:
    asked, answer = made({"way": way})
    blocks = pieces.home_blocks(asked).ravel()
    for figure in (
        figures.host_figure(asked, answer),
        figures.array_figure(asked, answer.joined, "array"),
    ):
        assert sorted(numbers(figure)) == sorted((str(n), int(blocks[n])) for n in range(64))
        assert not outlines(figure)
    on_devices = figures.devices_figure(asked, answer)
    assert [color for _, color in numbers(on_devices)] == list(range(8))
    assert labels_of(on_devices) == [f"device {device}" for device in range(8)]


def test_copies_are_drawn_once_in_the_array_and_separately_on_the_host() -> None:
    asked, answer = made({"spec": "x"})
    array = figures.array_figure(asked, answer.joined, "array")
    assert Counter(text for text, _ in numbers(array)) == Counter(map(str, range(64)))
    assert labels_of(array) == ["devices 0, 1, 2, 3", "devices 4, 5, 6, 7"]
    host = numbers(figures.host_figure(asked, answer))
    assert Counter(host) == {(f"{8 * row} … {8 * row + 7}", row // 4): 4 for row in range(8)}


def test_after_a_reshard_colors_show_the_original_block() -> None:
    asked, answer = made({"loading": "reshard"})
    figure = figures.array_figure(asked, answer.resharded, "resharded")
    for text, color in numbers(figure):
        first, last = map(int, text.split(" … "))
        assert last == first + 7
        # Two rows of 32 numbers were loaded in each block.
        assert color == first // 64
    assert len(numbers(figure)) == 16 * 4


@pytest.mark.parametrize(
    ("mistake", "host", "devices", "array"),
    [
        ("shape", ["✗ piece 3"], ["✗ device 3"], None),
        ("missing", [], ["✗ device 3"], None),
        ("dtype", ["✗ piece 3"], ["✗ device 3"], None),
        ("same_device", ["✗ piece 3", "✗ piece 4"], ["✗ device 3", "✗ device 4"], None),
        ("swapped", ["✗ piece 3", "✗ piece 4"], ["✗ device 3", "✗ device 4"],
         ["✗ device 3", "✗ device 4"]),
        ("list_order", [], [], []),
    ],
)  # fmt: skip
def test_only_wrong_pieces_are_marked(
    mistake: str, host: list[str], devices: list[str], array: list[str] | None
) -> None:
    asked, answer = made({"mistake": mistake})
    drawings = [figures.host_figure(asked, answer), figures.devices_figure(asked, answer)]
    if array is None:
        assert answer.joined is None
    else:
        drawings.append(figures.array_figure(asked, answer.joined, "array"))
    for figure, marked in zip(drawings, (host, devices, array), strict=False):
        assert [label for label in labels_of(figure) if label.startswith("✗")] == marked
        assert outlines(figure).count(palette.BAD) == len(marked)


def test_a_wrong_copy_is_shown_instead_of_a_correct_one() -> None:
    asked, answer = made({"spec": "x", "mistake": "copies", "device": "2"})
    figure = figures.array_figure(asked, answer.joined, "array")
    assert labels_of(figure)[0] == "✗ device 2 of 0, 1, 2, 3"
    assert ("64", 0) in numbers(figure) and ("0", 0) not in numbers(figure)


def test_an_uneven_array_cannot_be_cut() -> None:
    asked, answer = made({"shape": "9x8"})
    host = figures.host_figure(asked, answer)
    assert numbers(host)[0][0] == "cannot be cut"
    devices = figures.devices_figure(asked, answer)
    assert numbers(devices) == [] and "nothing was moved" in drawn.texts(devices)


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    "fields",
    [
        {"mesh": "16", "axes": "d", "shape": "64x64", "spec": ""},
        {"mesh": "4x4", "shape": "64x64"},
        {"mesh": "2x8", "shape": "4096", "spec": "x + y"},
        {"mesh": "2x2x4", "axes": "a,b,c", "shape": "16x16x16", "spec": "a, b, c"},
        {"mesh": "1", "axes": "a", "shape": "1", "spec": ""},
    ],
)
@pytest.mark.parametrize("width", [240, 304, 600])
def test_figures_are_small_and_fit_their_width(fields: dict[str, str], width: int) -> None:
    asked, answer = made(fields)
    for figure in (
        figures.host_figure(asked, answer, width_px=width),
        figures.devices_figure(asked, answer, width_px=width),
        figures.array_figure(asked, answer.joined, "array", width_px=width),
    ):
        assert figure.layout.width == width
        assert figure.layout.height < 1000
        assert drawn.size_bytes(figure) < 120_000
        right = max(right for _, right, _, _, _ in drawn.cells(figure))
        assert right <= width


def test_names_are_text() -> None:
    asked, answer = made({"axes": "b, script"} | {"spec": "b, script"})
    for figure in (figures.host_figure(asked, answer), figures.devices_figure(asked, answer)):
        for text in drawn.texts(figure):
            assert not re.search(r"<(?!/?b>|br>|extra>|/extra>)", text)
