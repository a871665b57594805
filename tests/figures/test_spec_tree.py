"""The tree of arrays: its rows, marks and bars, for small and large trees, one layout and several."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from inspector.compare import difference
from inspector.figures import palette
from inspector.figures.spec_tree import spec_tree
from inspector.figures.tree_rows import MOST_CHILDREN, MOST_ROWS, LayoutColumn, rows_of
from inspector.records.snapshot import Snapshot
from tests.figures import drawn, samples

MESH = samples.mesh(data=2, model=4)
STATE = samples.mlp_state()
DEEP = "params/params/decoder/moe_layers/DeepSeekMoeBlock_0/shared_experts"
LEAVES = ("wi_0/kernel_of_the_gate", "wi_0/kernel_of_the_values", "wo/kernel_of_the_output")


def texts(figure) -> list[str]:
    return [text for trace in figure.data if trace.type == "scatter" for text in trace.text]


def areas(figure) -> dict:
    """The trace that carries the hover texts and is selected."""
    (trace,) = [trace for trace in drawn.traces(figure, "bar") if "hovertext" in trace]
    return trace


def bars(figure) -> dict:
    (trace,) = [trace for trace in drawn.traces(figure, "bar") if "hovertext" not in trace]
    return trace


def columns_of(before: Snapshot, after: Snapshot) -> list[LayoutColumn]:
    changed = {pair.path for pair in difference.arrays(before, after) if pair.changed}
    return [LayoutColumn("before", before.arrays), LayoutColumn("after <b>", after.arrays, changed)]


def tree(columns: int, width_px: int, **changes):
    """A deep tree that the baseline, an empty layout, has nothing of."""
    arrays = tuple(
        replace(samples.array(f"{DEEP}/{leaf}", (64, 64), (None, ("model",)), MESH), **changes)
        for leaf in LEAVES
    )
    paths = {array.path for array in arrays}
    held = [LayoutColumn("none", ())]
    held += [LayoutColumn(f"layout {place}", arrays, paths) for place in range(columns - 1)]
    return spec_tree(held, None, width_px=width_px)


def test_deep_names_are_cut_in_the_middle() -> None:
    names = next(trace for trace in tree(8, 770).data if trace.type == "scatter")
    cut = [text for text in names.text if "…" in text]
    assert cut and all(text.index("…") >= 6 for text in cut), names.text
    assert len(set(names.x)) > 1, "deeper names have a larger indent"


def test_an_array_that_both_lack_is_a_dash() -> None:
    figure = tree(3, 1200)
    assert texts(figure).count("–") == len(LEAVES)
    assert "– is absent" in figure.layout.annotations[0].text


def test_the_spec_has_the_room_if_bytes_are_unknown() -> None:
    known = samples.array("params/other", (64, 64), (None, None), MESH)
    arrays = (
        replace(
            samples.array("params/w", (64, 64), (("data",), None), MESH),
            bytes=None,
            bytes_per_device=None,
        ),
    )
    columns = [LayoutColumn("known", (known,))]
    columns += [LayoutColumn(f"unknown {n}", arrays, {"params/w"}) for n in range(7)]
    figure = spec_tree(columns, None, width_px=900)
    assert sum("P(data, ·)" in text for text in texts(figure)) == 7
    note = figure.layout.annotations[0].text.replace("<br>", " ")
    assert "no amount: the bytes are unknown" in note


def test_the_tree_contains_all_arrays_and_marks_changed_ones() -> None:
    before, after = samples.state_and_changed()
    columns = columns_of(before, after)
    rows = rows_of(columns)
    leaves = [path for row in rows if row.node.fold is not None for path in row.paths]
    assert sorted(leaves) == sorted({array.path for array in (*before.arrays, *after.arrays)})
    for row in rows:
        if row.node.fold is not None:
            marks = {path in columns[1].changed for path in row.paths}
            assert len(marks) == 1, "what changed shares no row with what did not"
    # The amounts, or that the array is absent, of the row of each array that differs.
    assert sum(text.startswith("<b>≠") for text in texts(spec_tree(columns, None))) == 3
    closed = spec_tree(columns, None, toggled=[rows[0].key])
    assert [text for text in texts(closed) if "≠" in text] == ["<b>≠ 26.0 MiB</b>"]


@pytest.mark.parametrize(
    ("unknown", "shown"),
    [
        ({"bytes": None, "bytes_per_device": None}, "elements on each device"),
        ({"bytes_per_device": None, "shard_shape": None, "spec": None}, "bytes in total"),
    ],
)
def test_bars_show_what_is_known(unknown, shown: str) -> None:
    arrays = tuple(replace(array, **unknown) for array in STATE)
    figure = spec_tree([LayoutColumn("", arrays)], samples.DEFAULT_MESH)
    assert f"bars: {shown.split()[0]}" in figure.layout.annotations[0].text
    assert shown in figure.layout.annotations[0].text.replace("<br>", " ")
    assert sum(bars(figure)["x"]) > 0


def test_bars_are_sums_of_bytes_in_the_colors_of_the_specs() -> None:
    column = LayoutColumn("", STATE)
    rows = rows_of([column])
    figure = spec_tree([column], samples.DEFAULT_MESH)
    # Pixels by row and color, counted here from the arrays below each row.
    expected: dict[tuple[int, tuple[str, str]], int] = {}
    by_path = {array.path: array for array in STATE}
    for number, row in enumerate(rows):
        for path in row.paths:
            fill = palette.fill_of_spec(by_path[path].spec, samples.DEFAULT_MESH)
            key = number, (fill.color, fill.hatch)
            expected[key] = expected.get(key, 0) + by_path[path].bytes_per_device
    trace = bars(figure)
    pixels: dict[tuple[int, tuple[str, str]], float] = {}
    fills = zip(trace["marker"]["color"], trace["marker"]["pattern"]["shape"], strict=True)
    for y, width, fill in zip(trace["y"], trace["x"], fills, strict=True):
        pixels[int(y // 30), fill] = width
    assert pixels.keys() == expected.keys()
    root_px = sum(width for (number, _), width in pixels.items() if number == 0)
    total = sum(array.bytes_per_device for array in STATE)
    for key, width in pixels.items():
        assert width == pytest.approx(max(expected[key] / total * root_px, 1), rel=0.01)


def test_the_largest_is_first_and_a_row_selects_its_array_or_subtree() -> None:
    rows = rows_of([LayoutColumn("", STATE)])
    sizes = {array.path: array.bytes_per_device for array in STATE}
    for depth in {row.depth for row in rows}:
        for row, following in itertools.pairwise(rows):
            if row.depth == following.depth == depth:
                first, second = (sum(sizes[path] for path in one.paths) for one in (row, following))
                assert first >= second
    trace = areas(spec_tree([LayoutColumn("", STATE)], samples.DEFAULT_MESH, toggled=()))
    assert trace["customdata"] == [row.key for row in rows for _ in range(2)]
    assert {row.key for row in rows if row.node.fold is not None} <= sizes.keys()
    assert all(row.key.endswith("/") for row in rows if row.node.fold is None)


def test_a_subtree_closes_and_opens() -> None:
    columns = [LayoutColumn("", STATE)]
    rows = rows_of(columns)
    key = next(row.key for row in rows if row.node.fold is None and row.depth == 1)
    below = [row.key for row in rows if row.key.startswith(key)]
    closed = rows_of(columns, [key])
    assert [row.key for row in closed] == [row.key for row in rows if row.key == key or row.key not in below]
    marks = next(
        trace.text for trace in spec_tree(columns, samples.DEFAULT_MESH, toggled=[key]).data if trace.text
    )
    assert [text[0] for text in marks].count("▸") == 1
    static = spec_tree(columns, samples.DEFAULT_MESH)
    assert not any(text[0] in "▸▾" for text in texts(static) if text)
    assert "customdata" not in areas(static)


def test_of_1000_arrays_the_largest_subtrees_are_open() -> None:
    arrays = samples.many(1000, samples.LARGE_MESH)
    columns = [LayoutColumn("", arrays)]
    rows = rows_of(columns)
    assert len(rows) <= MOST_ROWS
    shown = [path for row in rows if not row.is_open for path in row.paths]
    assert sorted(shown) == sorted(array.path for array in arrays)
    figure = spec_tree(columns, samples.LARGE_MESH)
    assert drawn.size_bytes(figure) < 60_000
    # A difference is shown, however small.
    small = min(arrays, key=lambda array: array.bytes_per_device)
    (row,) = [
        row
        for row in rows_of([*columns, LayoutColumn("other", arrays, {small.path})])
        if row.node.fold is not None and small.path in row.paths
    ]
    assert not row.is_open


def test_the_smaller_of_many_arrays_below_one_node_share_a_row_that_opens() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    arrays = tuple(
        samples.array(f"params/{first}{second}", (8 + place,), (None,), MESH)
        for place, (first, second) in enumerate((a, b) for a in letters for b in letters)
    )
    columns = [LayoutColumn("", arrays)]
    rows = rows_of(columns)
    assert len(rows) == MOST_CHILDREN + 1
    joined = rows[-1]
    assert len(joined.paths) == len(arrays) - MOST_CHILDREN + 1
    assert max(map(len, joined.paths)) and joined.node.fold is None
    assert len(rows_of(columns, [joined.key])) == 2 * MOST_CHILDREN + 1


def test_a_tree_of_nothing_is_none() -> None:
    assert spec_tree([LayoutColumn("", ())], {}) is None
