"""The picture of several layouts: every amount is drawn to scale, and what is unknown is a box."""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import replace

import pytest

from inspector.compare.compared import compared
from inspector.compare.question import mark
from inspector.compare.questions.measures import measures
from inspector.core.snapshot import Snapshot
from inspector.figures import memory_bars, palette
from inspector.figures.glance import Column, glance
from inspector.machines import hardware
from tests.compare.glances import compiled, planned, sent
from tests.figures import drawn, samples

CHIP = hardware.chip("v5e")
PATH = "params/DotReluDot_0/Dense_0/kernel"


def picture(snapshots: list[Snapshot], baseline: int = 0, width_px: int = 960):
    named = [(f"layout {number}", one) for number, one in enumerate(snapshots)]
    every = measures(compared(named, CHIP), baseline)
    found = [one for one in every if one.kind != "flops"]  # is in the table only
    columns = [
        Column(f"layout {number}", one.mesh, (next((a for a in one.arrays if a.path == PATH), None),))
        for number, one in enumerate(snapshots)
    ]
    return found, glance(found, columns, baseline, [PATH], width_px=width_px)


def stacks(figure, yaxis: str) -> dict[int, float]:
    """Return the height of the stack in each column, and check that its parts touch."""
    parts: dict[int, list[tuple[float, float]]] = {}
    for bar in drawn.traces(figure, "bar"):
        if bar.get("yaxis") == yaxis:
            for x, base, size in zip(bar["x"], bar["base"], bar["y"], strict=True):
                parts.setdefault(x, []).append((base, base + size))
    for each in parts.values():
        each.sort()
        assert all(math.isclose(low[1], high[0]) for low, high in itertools.pairwise(each))
    return {x: each[-1][1] for x, each in parts.items()}


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("count", range(2, 9))
@pytest.mark.parametrize("width_px", [1140, 720])
def test_two_to_eight_layouts_are_drawn_to_scale(count: int, width_px: int) -> None:
    snapshots = [planned(sent(("data",), 1000 * (n + 1)), flops=1e9 * (n + 1)) for n in range(count)]
    found, figure = picture(snapshots, width_px=width_px)
    assert figure.layout.width == width_px
    for number, measure in enumerate(found):
        heights = stacks(figure, f"y{number + 1}" if number else "y")
        assert len(heights) == count
        # Segments too small to be seen are not drawn.
        for place, one in enumerate(measure.amounts):
            assert heights[place] == pytest.approx(one.value, rel=0.01)
    # Columns are inside the figure and do not overlap.
    low, high = figure.layout.xaxis.range
    assert (low, high) == (-0.5, count - 0.5)
    assert len([trace for trace in figure.data if trace.type == "heatmap"]) >= count


def test_an_unknown_amount_is_a_dashed_box() -> None:
    bare = samples.snapshot(arrays=())
    _, figure = picture([planned(sent(("data",), 1000)), bare])
    boxes = [shape for shape in figure.layout.shapes if shape.type == "rect" and shape.line.dash == "dash"]
    assert [(box.x0 + box.x1) / 2 for box in boxes] == [1, 1, 1]
    assert [one.text for one in figure.layout.annotations].count("unknown") == 3


def test_known_parts_of_an_unknown_amount_are_below_the_box() -> None:
    _, figure = picture([planned(sent(("data",), 1000)), planned(sent(("data",), 500), sent(None, None))])
    (traffic,) = [
        shape
        for shape in figure.layout.shapes
        if shape.type == "rect" and shape.line.dash == "dash" and shape.yref == "y3"
    ]
    assert traffic.y0 == 1500 and traffic.y1 > 1500
    assert any(text.startswith("<b>≥ 1.5 KiB</b>") for text in drawn.texts(figure))


def test_the_memory_of_the_chip_is_a_line_if_the_bars_come_near() -> None:
    limit = CHIP.allocatable_bytes

    def lines(figure):
        return [one.y0 for one in figure.layout.shapes if one.type == "line" and one.line.width == 3]

    assert lines(picture([compiled(1), compiled(2)])[1]) == []
    found, figure = picture([compiled(1), compiled(limit)])
    assert lines(figure) == [limit, limit]
    assert found[0].amounts[1].value > limit


def test_the_baseline_and_the_verdicts_need_no_color() -> None:
    plans = [planned(sent(("data",), size)) for size in (200, 100, 300)]
    found, figure = picture(plans, baseline=0)
    texts = drawn.texts(figure)
    traffic = found[2]
    assert [mark(one) for one in traffic.answers] == ["", "✓ −50% better", "✗ +50% worse"]
    for said in ("baseline", *map(mark, traffic.answers[1:])):
        assert any(said in text for text in texts)
    assert mark(traffic.answers[1], words=False) == "✓ −50%"
    shaded = next(one for one in figure.layout.shapes if one.type == "rect" and one.layer == "below")
    assert shaded.x0 < 0 < shaded.x1 < 1


def test_an_interval_above_the_scale_has_an_arrow() -> None:
    plans = [planned(sent(("data",), 1000), flops=1e12), planned(sent(("data",), 1000), flops=1e13)]
    found, _ = picture(plans)
    time = found[1]
    low = [replace(one, low=one.value / 2, high=one.value * 1.1) for one in time.amounts]
    for high, arrows in ((1.2, 0), (5, 1)):
        long = replace(low[1], high=low[1].value * high)
        columns = [Column("a", None), Column("b", None)]
        figure = glance([replace(time, amounts=(low[0], long))], columns)
        markers = [one for one in figure.data if one.type == "scatter"]
        cut = [one for one in markers if one.marker.symbol == "triangle-up"]
        assert len(cut) == arrows and [min(one.x) > 1 for one in cut] == [True] * arrows
        ends = next(one for one in markers if one.error_y.array is not None)
        top = max(map(operator.add, ends.y, ends.error_y.array))
        assert top <= figure.layout.yaxis.range[1]


def test_a_color_has_one_meaning() -> None:
    assert not {*palette.HUES.values(), palette.COMPUTE} & set(memory_bars.COLORS.values())


def test_headings_are_beside_or_above_the_columns() -> None:
    for width_px in (1140, 300):
        _, figure = picture([compiled(1), compiled(2)], width_px=width_px)
        headings = [one for one in figure.layout.annotations if one.text.startswith("<b>Memory")]
        (heading,) = headings
        left = figure.layout.margin.l
        assert heading.xref == "paper" and heading.xshift == 2 - left
        shades = [one for one in figure.layout.shapes if one.type == "rect" and one.yref == "paper"]
        inside = [one for one in shades if one.y0 < heading.y <= one.y1]
        # Either all of it is left of the columns, or the shade of the baseline leaves it out.
        assert (left > 100) == bool(inside)


def test_names_are_text() -> None:
    name = "<img src=x> $x^2$"
    one = planned(sent((name,), 1000))
    figure = glance(measures(compared([(name, one)] * 2)), [Column(name, one.mesh)] * 2)
    assert not [text for text in drawn.texts(figure) if "<img" in text or "$" in text]
