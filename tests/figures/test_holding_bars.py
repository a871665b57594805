"""The bars of held bytes and the map of copies."""

from __future__ import annotations

import numpy as np
import pytest

from inspector.core import device_holdings
from inspector.core.snapshot import Array, Mesh, MeshAxis, Snapshot, Source
from inspector.figures.holding_bars import ALONE, SHARED, bytes_by_group, holding_bars
from inspector.figures.mesh_map import copies_map
from tests.figures import drawn


def found(devices: int, name: str = "model") -> Snapshot:
    mesh = Mesh((MeshAxis("data", 2), MeshAxis(name, devices // 2)), tuple(range(devices)))
    arrays = (
        Array("params/a", "params", (64, 64), "float32", spec=(None, (name,)), bytes=16384),
        Array("opt/m", "opt_state", (64, 64), "float32", spec=(("data",), (name,)), bytes=16384),
        Array("step", "other", (), "int32", spec=(), bytes=4),
    )
    return Snapshot(Source("capture", None, "2026-01-01"), None, mesh, arrays)


def test_bars_are_the_bytes_of_each_group() -> None:
    held = device_holdings.holdings(found(8), [1])
    assert bytes_by_group(held) == [
        ("parameters", 4096, 0), ("optimizer state", 0, 2048), ("other arrays", 4, 0),
    ]  # fmt: skip
    drawn_bars = {bar["name"]: bar["x"] for bar in drawn.traces(holding_bars(held), "bar")}
    assert drawn_bars == {SHARED: [4096, 0, 4], ALONE: [0, 2048, 0]}
    nothing = device_holdings.holdings(found(8), [1], ("batch",))
    assert holding_bars(nothing) is None


@pytest.mark.parametrize("devices", [8, 64, 512])
@pytest.mark.parametrize("width_px", [360, 460])
def test_the_map_shows_the_share_of_every_device(devices: int, width_px: int) -> None:
    snapshot = found(devices)
    held = device_holdings.holdings(snapshot, [1])
    copies = device_holdings.copies_of(snapshot, [1])
    figure = copies_map(snapshot.mesh, copies, [1], held.bytes, width_px=width_px)
    points = drawn.points(figure)
    assert sorted(device for *_, device, _ in points) == list(range(devices))
    found_cells = drawn.cells(figure)
    for x, y, device, hover in points:
        step = drawn.at(found_cells, x, y)
        share = copies[device] / held.bytes
        if device == 1:
            assert step == 4 and "chosen" in hover
        else:
            assert step == (0 if share < 0.005 else 3 if share == 1 else 2 if share >= 0.5 else 1)
    # The other row holds the parameters, and no device the moments.
    assert copies[1 + devices // 2] > 0 and (copies > 0).sum() == devices
    assert drawn.size_bytes(figure) < 400_000


def test_no_map_without_bytes_and_names_are_text() -> None:
    snapshot = found(8, "<b>m$")
    assert copies_map(snapshot.mesh, np.zeros(8, np.int64), [0], 0) is None
    figure = copies_map(snapshot.mesh, device_holdings.copies_of(snapshot, [0]), [0], 100)
    assert "<b>m$" not in figure.to_json().replace("<b>device", "")
