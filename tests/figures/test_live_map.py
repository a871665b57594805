"""The bars of live bytes by owner."""

from __future__ import annotations

from inspector.core.snapshot import LiveBytes, Mesh, MeshAxis
from inspector.figures.train_state import NOBODY, live_map, owners_by_bytes

MESH = Mesh((MeshAxis("x", 2),), (5, 3))
LIVE = (
    LiveBytes(3, "params", 2, 100),
    LiveBytes(3, NOBODY, 1, 7),
    LiveBytes(5, "params", 2, 40),
    LiveBytes(5, "<b>state</b>", 1, 300),
)


def test_bars_are_in_mesh_order_and_add_up() -> None:
    figure = live_map(LIVE, MESH)
    heights = [sum(bar.y[place] for bar in figure.data) for place in range(2)]
    assert heights == [340, 107]
    assert list(figure.layout.xaxis.ticktext) == ["5", "3"]


def test_owners_are_ordered_by_bytes() -> None:
    assert owners_by_bytes(LIVE) == ["<b>state</b>", "params", NOBODY]


def test_names_are_text() -> None:
    assert live_map(LIVE, MESH).data[0].name == "&lt;b&gt;state&lt;/b&gt;"


def test_nothing_alive_is_no_figure() -> None:
    assert live_map((), MESH) is None
