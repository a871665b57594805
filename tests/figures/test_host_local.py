"""Borders between processes on the mesh, and arrays colored by the addressing processes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inspector.figures import mesh_map, pieces
from inspector.guides import processes
from inspector.guides.processes import Exchanged, Held, HostLocal, ProcessView
from inspector.records.snapshot import Array, Mesh
from inspector.sharding import placement as sharding
from tests.figures import drawn, samples


def borders(figure) -> list[tuple[float, float, float, float]]:
    """(x, x, y, y) of every piece of a line between processes."""
    lines = [t for t in drawn.traces(figure, "scatter") if t.get("name") == "process border"]
    found = []
    for line in lines:
        x, y = line["x"], line["y"]
        found += [(x[i], x[i + 1], y[i], y[i + 1]) for i in range(0, len(x), 3)]
    return found


def separated(figure, mesh: Mesh) -> None:
    """Between two neighbours there is a piece of border exactly if they are of different processes."""
    of = dict(zip(mesh.devices, mesh.processes, strict=True))
    at = {(round(x), round(y)): of[device] for x, y, device, _ in drawn.points(figure)}
    columns, rows = sorted({x for x, _ in at}), sorted({y for _, y in at})
    pieces = borders(figure)
    for (x, y), process in at.items():
        right = next((other for other in columns if other > x), None)
        below = next((other for other in rows if other > y), None)
        if (right, y) in at:
            parted = any(a == b and x < a < right and c < y < d for a, b, c, d in pieces)
            assert parted == (at[right, y] != process), (x, y)
        if (x, below) in at:
            parted = any(c == d and y < c < below and a < x < b for a, b, c, d in pieces)
            assert parted == (at[x, below] != process), (x, y)


@pytest.mark.parametrize("processes_", [2, 4])
@pytest.mark.parametrize(
    "axes",
    [
        {"a": 2, "b": 4},
        {"a": 4, "b": 2},
        {"x": 8},
        {"x": 64},
        {"a": 2, "b": 2, "c": 4},
        {"a": 3, "b": 4},
    ],
)
def test_borders_separate_processes(axes: dict, processes_: int) -> None:
    mesh = samples.mesh(processes_, **axes)
    array = samples.array("params/w", (8, 8), (None, None), mesh)
    figure = mesh_map.mesh_map(array, mesh)
    assert borders(figure)
    separated(figure, mesh)
    (note,) = [a["text"] for a in drawn.spec(figure)["layout"]["annotations"]]
    assert "process 0 has 0" in note


def test_one_process_has_no_borders() -> None:
    mesh = samples.mesh(a=2, b=4)
    array = samples.array("params/w", (8, 8), (None, None), mesh)
    for on in (mesh, dataclasses.replace(mesh, processes=None)):
        figure = mesh_map.mesh_map(array, on)
        assert borders(figure) == []
        assert "process" not in drawn.spec(figure)["layout"]["annotations"][0]["text"]


def test_many_processes_are_counted() -> None:
    mesh = samples.mesh(64, a=16, b=16)
    figure = mesh_map.mesh_map(samples.array("params/w", (8, 8), (None, None), mesh), mesh)
    assert "in 64 processes, separated by thick lines" in str(drawn.spec(figure)["layout"])
    separated(figure, mesh)


def exchanged(wanted: HostLocal) -> Exchanged:
    """What JAX would make of it, by integer arithmetic."""
    mesh, shape = wanted.mesh(), processes.global_shape(wanted)
    placement = sharding.place(shape, wanted.spec, mesh)
    views = []
    for number in range(wanted.processes):
        places = [place for place, process in enumerate(mesh.processes) if process == number]
        held = []
        for place in places:
            index = tuple(zip(placement.starts[place].tolist(), placement.stops[place].tolist(), strict=True))
            extents = [stop - start for start, stop in index]
            numbers = np.full(extents, 100 * number + place)
            held.append(Held(mesh.devices[place], index, tuple(numbers.ravel().tolist())))
        given = tuple(wanted.given(number).ravel().tolist())
        views.append(
            ProcessView(
                process=number,
                processes=wanted.processes,
                devices=tuple(mesh.devices[place] for place in places),
                all_devices=wanted.devices,
                local_mesh=processes.local_mesh(wanted, number),
                given=given,
                addressable=tuple(held),
                returned_shape=wanted.local_shape,
                returned=given,
            )
        )
    array = Array("batch", "batch", shape, "int32", spec=wanted.spec, bytes=4 * int(np.prod(shape)))
    return Exchanged(mesh, array, "NamedSharding", tuple(views), None)


def texts(figure) -> list[list[str]]:
    """The texts of the cells, row by row, whatever the color of the letters."""
    rows: dict[float, dict[float, str]] = {}
    for heatmap in drawn.traces(figure, "heatmap"):
        for at, row in enumerate(heatmap["text"]):
            for place, text in enumerate(row):
                if text:
                    rows.setdefault(heatmap["y"][at], {})[heatmap["x"][place]] = text
    return [[row[x] for x in sorted(row)] for _, row in sorted(rows.items())]


def labels_of(figure) -> list[str]:
    (trace,) = [trace for trace in drawn.traces(figure, "scatter") if trace["mode"] == "text"]
    return trace["text"]


def colors(figure) -> list[int]:
    """The number of the color of each cell, row by row."""
    return [z for *_, z in sorted(drawn.cells(figure), key=lambda cell: (cell[2], cell[0]))]


def test_local_arrays_have_the_colors_of_their_processes() -> None:
    wanted = processes.parse({}).unwrap()
    views = exchanged(wanted).views
    for returned in (False, True):
        figure = pieces.local_figure(wanted, views, returned=returned)
        assert texts(figure) == [[str(2 * row), str(2 * row + 1)] for row in range(8)]
        assert colors(figure) == [0] * 8 + [1] * 8
        assert labels_of(figure) == ["process 0", "process 1"]


@pytest.mark.parametrize(
    ("fields", "labels", "owners"),
    [
        ({}, ["0:4 process 0", "4:8 process 1"], [[0, 0]] * 4 + [[1, 1]] * 4),
        ({"local": "4"}, ["0:4 process 0", "4:8 process 1"], [[0]] * 4 + [[1]] * 4),
        ({"spec": "None,x", "local": "2x4"}, ["0:2 processes 0, 1"], [[0] * 4 + [1] * 4] * 2),
        # One more color for what both have.
        ({"spec": "", "local": "2x2"}, ["0:2 processes 0, 1"], [[2, 2]] * 2),
    ],
)
def test_the_global_array_names_the_addressing_processes(fields: dict, labels: list, owners: list) -> None:
    wanted = processes.parse(fields).unwrap()
    result = exchanged(wanted)
    figure = pieces.global_figure(result)
    assert labels_of(figure) == labels
    assert colors(figure) == [owner for row in owners for owner in row]
    # Each number is the one that the first device holding it has.
    placement = sharding.place(result.array.shape, wanted.spec, result.mesh)
    shown = [text for row in texts(figure) for text in row]
    for text, place in zip(shown, np.ndindex(*result.array.shape), strict=True):
        holders = np.all((placement.starts <= place) & (place < placement.stops), axis=1)
        first = int(np.argmax(holders))
        assert text == str(100 * result.mesh.processes[first] + first)


def test_the_largest_array_is_a_small_figure() -> None:
    wanted = processes.parse({"processes": "4", "local": "16x16"}).unwrap()
    result = exchanged(wanted)
    for figure in (pieces.local_figure(wanted, result.views), pieces.global_figure(result)):
        assert len(texts(figure)) == 4 * 16  # the first and the last number of each row
        assert drawn.size_bytes(figure) < 400_000
        assert figure.layout.height < 1300
