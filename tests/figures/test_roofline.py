"""The roofline: roofs that meet at the critical intensity, and the points of programs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.snapshot import Collective, MatmulFlops, Mesh, MeshAxis, Program, Work
from inspector.figures.roofline import roofline
from inspector.machines.hardware import CHIPS, chip
from inspector.machines.prediction.step_model import modelled
from tests.figures import drawn

MESH = Mesh((MeshAxis("x", 8),), tuple(range(8)), device_kind="cpu")
V5P = chip("v5p")


def point(name: str, flops: float, count: float | None, on=V5P, dtype: str = "bfloat16"):
    done = Work(flops, (MatmulFlops(dtype, flops),), count)
    return modelled(Program(name, collectives=(), work=done, ideal=done), MESH, on)


def traces(figure, mode: str) -> list[dict]:
    return [trace for trace in drawn.traces(figure, "scatter") if trace["mode"] == mode]


@pytest.mark.parametrize("name", CHIPS)
def test_the_roofs_meet_at_the_critical_intensity(name: str) -> None:
    on = chip(name)
    figure = roofline(on, [])
    (roof,) = traces(figure, "lines")
    peak = on.peak("bfloat16").flops_per_second
    bandwidth = on.hbm_bytes_per_second_per_device
    (low, ridge, _), (start, top, end) = roof["x"], roof["y"]
    assert ridge * bandwidth == pytest.approx(peak)
    assert (top, end) == (peak, peak)
    assert start == pytest.approx(low * bandwidth)
    assert "modelled" in figure.layout.title.text


@given(st.lists(st.tuples(st.floats(1e6, 1e14), st.floats(1e3, 1e12)), min_size=1, max_size=4))
def test_points_are_below_the_roof_and_inside_the_plot(pairs) -> None:
    points = [point(f"p{n}", *pair) for n, pair in enumerate(pairs)]
    figure = roofline(V5P, points, width_px=340)
    (marks,) = traces(figure, "markers")
    (x_low, x_high), (y_low, y_high) = figure.layout.xaxis.range, figure.layout.yaxis.range
    for x, y, (flops, count) in zip(marks["x"], marks["y"], pairs, strict=True):
        assert x == pytest.approx(flops / count)
        assert y == pytest.approx(min(x * V5P.hbm_bytes_per_second, 4.59e14))
        assert x_low <= math.log10(x) <= x_high and y_low <= math.log10(y) <= y_high
    texts = drawn.texts(figure)
    assert all(one.program in texts for one in points)


def test_each_operand_dtype_has_a_roof() -> None:
    on = chip("h100")
    points = [point("a", 1e12, 1e9, on), point("b", 1e12, 1e9, on, "float32")]
    figure = roofline(on, points)
    assert len(traces(figure, "lines")) == 2
    assert {"bf16 peak", "tf32 peak"} <= set(drawn.texts(figure))
    # v5p runs fp8 as fast as bf16: one roof with both names.
    both = [point("a", 1e12, 1e9), point("b", 1e12, 1e9, dtype="float8_e4m3fn")]
    assert "bf16 and fp8 peak" in drawn.texts(roofline(V5P, both))


def test_a_line_connects_a_communication_bound_point_with_the_roof() -> None:
    slow = Collective("all-reduce", False, "r", "main", 1, False, ("x",), 8, 1, 10**10, 10**10)
    done = Work(1e12, (MatmulFlops("bfloat16", 1e12),), 1e9)
    held = modelled(Program("a", collectives=(slow,), work=done), MESH, V5P)
    assert held.ruling.kind == "communication"
    _, line = traces(roofline(V5P, [held]), "lines")
    assert line["y"] == pytest.approx([1e12 / held.lower_seconds, 4.59e14])


def test_programs_without_a_point_are_named() -> None:
    figure = roofline(V5P, [point("init", 0.0, 1e9), point("odd", 1e9, None), point("a", 1e9, 1e9)])
    (marks,) = traces(figure, "markers")
    assert len(marks["x"]) == 1
    assert (
        "not drawn: Initialization (no matrix products), odd (unknown)" in figure.layout.annotations[0].text
    )


def test_names_are_text_and_do_not_overlap() -> None:
    points = [point(f"<b>{n}</b>", 1e12, 1e9) for n in range(4)]
    figure = roofline(V5P, points, width_px=340)
    names = [annotation for annotation in figure.layout.annotations if "&lt;b&gt;" in annotation.text]
    assert len(names) == 4
    places = {(round(name.x, 3), round(name.y, 3)) for name in names}
    assert len(places) == 4
    assert not any("<b>" in text for text in drawn.texts(figure))


def test_the_ground_is_transparent() -> None:
    layout = roofline(V5P, [point("a", 1e12, 1e9)]).layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"
