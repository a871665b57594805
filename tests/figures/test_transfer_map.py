"""The device × device map of a transfer contains every byte once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inspector.figures import labels
from inspector.figures.device_grid import transfer_grid, transfer_map
from inspector.guides.transfer import Transfer, totals, transfer
from inspector.records.snapshot import Array, Mesh, MeshAxis, Snapshot, Source
from inspector.text import formatting
from tests.figures import drawn
from tests.guides.routes import dense

SOURCE = Source("plan", "plan", "2026-01-01T00:00:00+00:00")


def state(shape: tuple[int, ...], spec, first: int = 0) -> Snapshot:
    axes = tuple(MeshAxis(name, size) for name, size in zip("ab", shape, strict=False))
    mesh = Mesh(axes, tuple(range(first, first + math.prod(shape))))
    array = Array("params/w", "params", (512, 1024), "float32", spec=spec, bytes=512 * 1024 * 4)
    return Snapshot(SOURCE, None, mesh, (array,))


def change(old: tuple[int, ...], new: tuple[int, ...], first: int = 0) -> Transfer:
    """Rows over all devices become columns over all devices: everybody sends to everybody."""
    axes = ("a", "b")
    return transfer(state(old, (axes[: len(old)], None)), state(new, (None, axes[: len(new)]), first))


CHANGES = {
    "8 to 8": change((2, 4), (8,)),
    "8 to 4": change((8,), (2, 2)),
    "4 to 8": change((4,), (8,)),
    "64 to 128": change((64,), (128,)),
    "512 to 512": change((512,), (16, 32)),
    "other devices": change((4,), (4,), first=2),
    "nothing moves": transfer(state((2, 4), (None, ("b",))), state((2, 4), (None, ("b",)))),
}


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", CHANGES)
def test_cells_are_exactly_the_routes(name: str) -> None:
    transfer = CHANGES[name]
    cells = transfer_grid(transfer)
    assert cells.moved.sum() == totals(transfer).moved and cells.kept.sum() == totals(transfer).kept
    expected = np.where(cells.moved > 0, cells.moved, cells.kept).astype(float)
    seen = np.full(expected.shape, 0.0)
    for heatmap in drawn.traces(transfer_map(transfer), "heatmap"):
        shown = np.nan_to_num(drawn.matrix(heatmap["z"]))
        assert not (np.minimum(seen, shown)).any(), "two colors in one cell"
        seen += shown
    assert seen == pytest.approx(expected)


def test_each_pair_of_few_devices_is_a_cell() -> None:
    transfer = CHANGES["4 to 8"]
    cells = transfer_grid(transfer)
    assert cells.sources == ((0,), (1,), (2,), (3,)) and len(cells.targets) == 8
    assert (cells.moved + cells.kept).tolist() == dense(transfer).tolist()
    figure = transfer_map(transfer, width_px=1000)
    texts = {text for heatmap in drawn.traces(figure, "heatmap") for row in heatmap["text"] for text in row}
    assert texts - {""} == {formatting.bytes_text(512 * 1024 * 4 // 32)}
    hovers = [text for text in drawn.texts(figure) if "→" in text]
    assert "<b>device 0 → device 1</b><br>64.0 KiB (65,536 bytes) moves" in hovers
    assert len(hovers) == 4 * 8 - 4


def test_the_title_is_text_and_parts_are_in_the_hover_text() -> None:
    transfer = CHANGES["4 to 8"]
    texts = drawn.texts(
        transfer_map(transfer, title="params/<b>w</b>", parts={(0, 1): ((0, 128), (128, 256))})
    )
    assert "params/&lt;b&gt;w&lt;/b&gt;" in texts
    (hover,) = [text for text in texts if "index" in text]
    assert hover.startswith("<b>device 0 → device 1</b>")
    assert hover.endswith("index [0:128, 128:256]")


def test_devices_of_only_one_layout_are_named() -> None:
    few, more = (
        drawn.texts(transfer_map(CHANGES["8 to 4"])),
        drawn.texts(transfer_map(CHANGES["4 to 8"])),
    )
    assert any("devices 4, 5, 6, 7 only in the old layout" in text for text in few)
    assert any("devices 4, 5, 6, 7 only in the new layout" in text for text in more)
    apart = " ".join(drawn.texts(transfer_map(CHANGES["other devices"])))
    assert "devices 0, 1 only in the old layout" in apart
    assert "devices 4, 5 only in the new layout" in apart


@pytest.mark.nightly
def test_many_devices_share_cells() -> None:
    transfer = CHANGES["512 to 512"]
    cells = transfer_grid(transfer)
    assert len(cells.sources) == len(cells.targets) == 64
    assert cells.sources[1] == tuple(range(8, 16))
    assert cells.moved[0, 1] == dense(transfer)[:8, 8:16].sum()
    assert cells.kept[0, 0] == np.trace(dense(transfer)[:8, :8])
    assert cells.moved[0, 0] + cells.kept[0, 0] == dense(transfer)[:8, :8].sum()
    figure = transfer_map(transfer)
    assert drawn.size_bytes(figure) < 700_000
    assert figure.layout.height < 1000
    assert any("8 neighboring devices" in text for text in drawn.texts(figure))
    uneven = transfer_grid(transfer, most=100)
    assert len(uneven.sources) == 86 and sum(map(len, uneven.sources)) == 512
    assert uneven.moved.sum() == totals(transfer).moved


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("width_px", [360, 760, 1400])
def test_texts_fit_into_their_cells(name: str, width_px: int) -> None:
    figure = transfer_map(CHANGES[name], width_px=width_px)
    across = width_px - figure.layout.margin.l - figure.layout.margin.r
    for heatmap in drawn.traces(figure, "heatmap"):
        columns = drawn.matrix(heatmap["z"]).shape[1]
        for row in heatmap.get("text") or ():
            assert all(labels.width_px(text, 11) <= across / columns for text in row if text)
