"""Bars and the device × device map of collectives: nothing lost, nothing made up, texts as text."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inspector.compiled.device_traffic import DeviceTraffic, device_traffic
from inspector.core.collectives import OPS, traffic
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import Collective
from inspector.figures import labels
from inspector.figures.collective_bars import COLORS, collective_bars
from inspector.figures.traffic_map import traffic_map
from tests.compiled.test_device_traffic import collective
from tests.figures import drawn, samples

ON = samples.DEFAULT_MESH
KIB = 1024


def program(**changes) -> list[Collective]:
    return [
        collective("all-reduce", ("data",), 8 * KIB, ON, executions=4),
        collective("all-gather", ("data",), 6 * KIB, ON),
        collective("all-reduce", ("model",), 2 * KIB, ON, **changes),
        collective("all-to-all", ("data", "model"), 8 * KIB, ON),
    ]


def bars(figure) -> dict[tuple[str, int], tuple[float, float]]:
    """(color, place of the bar) → (start, length)."""
    return {
        (trace["marker"]["color"], round(place)): (start, length)
        for trace in drawn.traces(figure, "bar")
        for place, start, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
    }


def test_bars_are_the_traffic_s_bytes_end_to_end() -> None:
    figure = collective_bars(traffic(program()))
    assert list(figure.layout.yaxis.ticktext) == ["data", "data × model", "model"]
    reduce, gather, everybody = (COLORS[op] for op in ("all-reduce", "all-gather", "all-to-all"))
    assert bars(figure) == {
        (reduce, 0): (0, 32 * KIB),
        (gather, 0): (32 * KIB, 3 * KIB),
        (everybody, 1): (0, 7 * KIB),
        (reduce, 2): (0, 3 * KIB),
    }
    words = drawn.texts(figure)
    assert {bytes_text(35 * KIB), bytes_text(7 * KIB), bytes_text(3 * KIB)} <= set(words)
    assert len(set(COLORS.values())) == len(OPS)


def test_the_unknown_is_said_and_has_no_length() -> None:
    known_by_half = collective_bars(
        traffic([*program(), collective("all-gather", ("model",), None, ON)])
    )
    assert "3.0 KiB + 1 collective unknown" in drawn.texts(known_by_half)
    unknown = collective_bars(traffic(program(executions=None)))
    assert "unknown" in drawn.texts(unknown) and "0 B" not in drawn.texts(unknown)
    nowhere = collective_bars(traffic([collective("all-reduce", None, 8, ON)]))
    assert "unknown axes" in drawn.texts(nowhere) and "unknown" in drawn.texts(nowhere)
    alone = collective_bars(traffic([collective("all-reduce", (), 8, ON)]))
    assert "no axis" in drawn.texts(alone) and "0 B" in drawn.texts(alone)


def test_no_collectives_make_no_picture() -> None:
    assert collective_bars(()) is None
    assert traffic_map(device_traffic((), ON), ON) is None


@pytest.mark.parametrize("width_px", [320, 480, 960])
def test_texts_stay_inside(width_px: int) -> None:
    rows = traffic([collective(op, ("data",), 8 * KIB, ON) for op in OPS])
    figure = collective_bars(rows, width_px=width_px)
    for annotation in figure.layout.annotations:
        name = annotation.text.rpartition(">")[2]
        at = figure.layout.margin.l + annotation.xshift
        assert at + labels.width_px(name, 12) <= width_px
    assert figure.layout.margin.t + 44 + 8 == figure.layout.height


def test_names_are_text() -> None:
    hostile = samples.mesh(**{"<b>x</b>": 2})
    figure = collective_bars(traffic([collective("all-reduce", ("<b>x</b>",), 8, hostile)]))
    assert "<b>x</b>" not in drawn.texts(figure)
    assert "&lt;b&gt;x&lt;/b&gt;" in drawn.texts(figure)


def test_the_map_has_every_byte_once() -> None:
    found = device_traffic(program(), ON)
    seen = np.zeros((8, 8))
    figure = traffic_map(found, ON)
    for heatmap in drawn.traces(figure, "heatmap"):
        seen += np.nan_to_num(drawn.matrix(heatmap["z"]))
    assert seen == pytest.approx(found.sent)
    assert any("ring algorithm assumed" in text for text in drawn.texts(figure))


def test_what_is_missing_in_the_map_is_said() -> None:
    found = device_traffic(program(executions=None), ON)
    words = " ".join(drawn.texts(traffic_map(found, ON, width_px=960)))
    assert "1 of 4 collectives left out" in words


def test_many_devices_are_drawn_in_runs() -> None:
    on = samples.mesh(data=16, model=32)
    sent = device_traffic([collective("all-to-all", ("data", "model"), 512 * KIB, on)], on)
    figure = traffic_map(sent, on)
    (heatmap,) = drawn.traces(figure, "heatmap")
    assert drawn.matrix(heatmap["z"]).shape == (64, 64)
    assert np.nansum(drawn.matrix(heatmap["z"])) == pytest.approx(sent.sent.sum())
    assert drawn.size_bytes(figure) < 700_000


def test_devices_have_the_mesh_s_ids() -> None:
    on = dataclasses.replace(samples.mesh(data=2), devices=(7, 3))
    table = np.array([[0, 5], [0, 0]])
    figure = traffic_map(DeviceTraffic(table, 1, 0), on)
    assert list(figure.layout.yaxis.ticktext) == ["7", "3"]
    assert any("device 7 → device 3" in text for text in drawn.texts(figure))
