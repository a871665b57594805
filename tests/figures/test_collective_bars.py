"""The bars and the device × device map of collectives."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inspector.compiled.device_traffic import DeviceTraffic, device_traffic
from inspector.figures import labels, palette
from inspector.figures.bars import collective_bars
from inspector.figures.device_grid import traffic_map
from inspector.records.collectives import OPS
from inspector.records.snapshot import Collective
from inspector.sharding.traffic import traffic
from inspector.text.formatting import bytes_text
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


def segments(figure) -> dict[tuple[str, int], tuple[float, float]]:
    """Return (name, number of the bar) → (start, length)."""
    rows = sorted({y for trace in drawn.traces(figure, "bar") for y in trace["y"]})
    return {
        (trace["name"], rows.index(y)): (start, length)
        for trace in drawn.traces(figure, "bar")
        for y, start, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
    }


def headings(figure) -> list[str]:
    """Return the heading of each bar, without markup; the first annotation holds the notes."""
    texts = [annotation.text for annotation in figure.layout.annotations[1:]]
    return [text.replace("<b>", "").replace("</b>", "") for text in texts]


def test_segments_are_the_bytes_of_each_operation() -> None:
    figure = collective_bars(traffic(program()))
    assert headings(figure) == [
        f"data  {bytes_text(35 * KIB)}",
        f"data × model  {bytes_text(7 * KIB)}",
        f"model  {bytes_text(3 * KIB)}",
    ]
    assert segments(figure) == {
        ("all-reduce over data", 0): (0, 32 * KIB),
        ("all-gather over data", 0): (32 * KIB, 3 * KIB),
        ("all-to-all over data × model", 1): (0, 7 * KIB),
        ("all-reduce over model", 2): (0, 3 * KIB),
    }
    color = {trace["name"]: trace["marker"]["color"] for trace in drawn.traces(figure, "bar")}
    strong, pale = (color[f"{op} over data"] for op in ("all-reduce", "all-gather"))
    assert (pale, strong) == palette.shades_of(palette.color_of_axis("data"), 2)
    assert color["all-reduce over model"] in palette.shades_of(palette.color_of_axis("model"), 1)


def test_unknown_bytes_are_named_and_have_no_length() -> None:
    known_by_half = collective_bars(traffic([*program(), collective("all-gather", ("model",), None, ON)]))
    assert "model  3.0 KiB + 1 collective unknown" in headings(known_by_half)
    unknown = collective_bars(traffic(program(executions=None)))
    assert "model  unknown" in headings(unknown)
    nowhere = collective_bars(traffic([collective("all-reduce", None, 8, ON)]))
    assert headings(nowhere) == ["unknown axes  unknown"]
    alone = collective_bars(traffic([collective("all-reduce", (), 8, ON)]))
    assert headings(alone) == ["no axis  0 B"]


def test_a_new_operation_is_drawn() -> None:
    row = dataclasses.replace(traffic(program())[0], op="collective-dance")
    (bar,) = drawn.traces(collective_bars([row]), "bar")
    assert bar["name"] == "collective-dance over data"


def test_no_collectives_is_no_figure() -> None:
    assert collective_bars(()) is None
    assert traffic_map(device_traffic((), ON), ON) is None


@pytest.mark.parametrize("width_px", [320, 480, 960])
def test_headings_fit_into_the_figure(width_px: int) -> None:
    rows = traffic([collective(op, ("data",), 8 * KIB, ON) for op in OPS])
    figure = collective_bars(rows, width_px=width_px)
    for heading in headings(figure):
        assert labels.width_px(heading, 12) <= width_px


def test_names_are_text() -> None:
    hostile = samples.mesh(**{"<b>x</b>": 2})
    figure = collective_bars(traffic([collective("all-reduce", ("<b>x</b>",), 8, hostile)]))
    texts = " ".join(drawn.texts(figure))
    assert "<b>x" not in texts and "&lt;b&gt;x&lt;/b&gt;" in texts


def test_the_map_contains_every_byte_once() -> None:
    result = device_traffic(program(), ON)
    seen = np.zeros((8, 8))
    figure = traffic_map(result, ON)
    for heatmap in drawn.traces(figure, "heatmap"):
        seen += np.nan_to_num(drawn.matrix(heatmap["z"]))
    assert seen == pytest.approx(result.sent)
    assert any("ring algorithm assumed" in text for text in drawn.texts(figure))


def test_the_map_names_what_it_leaves_out() -> None:
    result = device_traffic(program(executions=None), ON)
    words = " ".join(drawn.texts(traffic_map(result, ON, width_px=960)))
    assert "1 of 4 collectives left out" in words


def test_many_devices_share_cells() -> None:
    on = samples.mesh(data=16, model=32)
    sent = device_traffic([collective("all-to-all", ("data", "model"), 512 * KIB, on)], on)
    figure = traffic_map(sent, on)
    (heatmap,) = drawn.traces(figure, "heatmap")
    assert drawn.matrix(heatmap["z"]).shape == (64, 64)
    assert np.nansum(drawn.matrix(heatmap["z"])) == pytest.approx(sent.sent.sum())
    assert drawn.size_bytes(figure) < 700_000


def test_devices_have_the_ids_of_the_mesh() -> None:
    on = dataclasses.replace(samples.mesh(data=2), devices=(7, 3))
    table = np.array([[0, 5], [0, 0]])
    figure = traffic_map(DeviceTraffic(table, 1, 0), on)
    assert list(figure.layout.yaxis.ticktext) == ["7", "3"]
    assert any("device 7 → device 3" in text for text in drawn.texts(figure))


@pytest.mark.nightly
def test_the_map_of_100_000_devices_is_small() -> None:
    on = samples.mesh(data=1000, model=100)
    program = [
        collective("all-reduce", ("data",), 1000 * KIB, on),
        collective("all-to-all", ("data", "model"), 100_000 * 7 + 3, on),
    ]
    traffic_ = device_traffic(program, on)
    assert traffic_.sent.shape[0] <= 1024
    assert traffic_.sent.sum() == 100_000 * sum(one.wire_bytes_per_device for one in program)
    figure = traffic_map(traffic_, on)
    assert figure is not None and drawn.size_bytes(figure) < 900_000
