"""The board's figures for layouts with different models, paths or unknown bytes."""

from __future__ import annotations

from dataclasses import replace

from inspector.compare.difference import SpecRow
from inspector.figures.linked_maps import cut_of, linked_maps, panel
from inspector.figures.marked_tree import Column, marked_tree
from inspector.figures.palette import styles_of_specs
from inspector.figures.spec_matrix import spec_matrix
from tests.figures import samples

MESH = samples.mesh(data=2, model=4)
DEEP = "params/params/decoder/moe_layers/DeepSeekMoeBlock_0/shared_experts"
LEAVES = ("wi_0/kernel_of_the_gate", "wi_0/kernel_of_the_values", "wo/kernel_of_the_output")


def texts(figure) -> list[str]:
    return [text for trace in figure.data if trace.type == "scatter" for text in trace.text]


def tree(columns: int, width_px: int, **changes):
    """A deep tree that the baseline, an empty layout, has nothing of."""
    arrays = tuple(
        replace(samples.array(f"{DEEP}/{leaf}", (64, 64), (None, ("model",)), MESH), **changes)
        for leaf in LEAVES
    )
    paths = {array.path for array in arrays}
    held = [Column("none", (), None)]
    held += [Column(f"layout {place}", arrays, paths) for place in range(columns - 1)]
    return marked_tree(held, styles_of_specs(arrays, None), width_px=width_px)


def test_deep_names_are_cut_in_the_middle() -> None:
    names = next(trace for trace in tree(8, 770).data if trace.mode == "text")
    assert names.customdata[-1] == "wo/kernel_of_the_output"
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
    columns = [Column("known", (known,), None)]
    columns += [Column(f"unknown {n}", arrays, {"params/w"}) for n in range(7)]
    figure = marked_tree(columns, styles_of_specs((known, *arrays), None), width_px=900)
    assert sum("P(data, ·)" in text for text in texts(figure)) == 7
    note = figure.layout.annotations[0].text.replace("<br>", " ")
    assert "no amount: the bytes are unknown" in note


def test_the_matrix_cuts_the_path_and_keeps_the_count() -> None:
    title = f"{DEEP}/{LEAVES[0]} and 19 more"
    row = SpecRow(title, tuple(map(str, range(20))), (None, "P('data')"), True, ())
    other = SpecRow(LEAVES[1], (LEAVES[1],), (None, None), False, ())
    figure = spec_matrix([row, other], ["one", "two"], width_px=420)
    assert figure.layout.yaxis.ticktext[0].endswith(" and 19 more")
    assert "…" in figure.layout.yaxis.ticktext[0]
    cells = [cell for trace in figure.data for line in trace.text for cell in line if cell]
    assert sorted(cells) == ["–", "–", "–", "≠ data"]
    assert "–: absent" in figure.layout.annotations[0].text.replace("<br>", " ")


def test_a_row_without_maps_is_low() -> None:
    array = samples.array("params/w", (1024, 1024), (None, ("model",)), MESH)
    held = [(array, MESH)] * 2
    cut = cut_of(held)
    of = [panel(f"layout {n}", *one, cut, array.shape) for n, one in enumerate(held)]
    none = [panel(f"none {n}", None, MESH, cut, array.shape) for n in range(2)]
    two, four, full = (
        linked_maps(panels, array.path, cut, width_px=520) for panels in (of, of + none, of + of)
    )
    assert full.layout.height - two.layout.height > 2 * (four.layout.height - two.layout.height)
    right = max(axis.domain[1] for axis in (two.layout.xaxis, two.layout.xaxis2))
    assert (1 - right) * 516 >= 10, "half of the label 1024 is right of the map"
    assert two.layout.xaxis.ticktext[-1] == "1024"
