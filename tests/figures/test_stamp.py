"""The source of a figure is written below it; the figure does not move and no text is cut."""

from __future__ import annotations

import base64
import dataclasses
import html

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inspector.answers import subject
from inspector.figures import labels, palette, stamp
from inspector.figures.block_map import block_map
from inspector.figures.mesh_map import mesh_map
from inspector.figures.spec_tree import spec_tree
from inspector.figures.tree_rows import LayoutColumn
from inspector.figures.whole_model.machine import Canvas
from tests.figures import samples
from tests.media import hostile


def tree(arrays, on):
    return spec_tree([LayoutColumn("", arrays)], on)


@pytest.mark.parametrize("draw", [tree, lambda arrays, on: block_map(arrays[1], on)])
def test_the_figure_grows_below(draw) -> None:
    snapshot = samples.snapshot()
    figure = draw(snapshot.arrays, snapshot.mesh)
    stamped = stamp.stamped_with(figure, [subject.source_line(snapshot)])
    before, after = figure.layout, stamped.layout
    assert stamped.data == figure.data and after.width == before.width
    assert (after.margin.t, after.margin.l, after.margin.r) == (
        before.margin.t,
        before.margin.l,
        before.margin.r,
    )
    more = after.height - before.height
    assert after.margin.b - before.margin.b == more
    text = after.annotations[-1]
    # It begins below the old lower edge, and ends above the new one.
    assert -text.yshift >= before.margin.b
    lines = text.text.count("<br>") + 1
    assert -text.yshift + lines * 1.3 * text.font.size <= after.margin.b
    assert len(after.annotations) == len(before.annotations) + 1


def test_a_stamp_names_model_mesh_rules_target_versions_and_date() -> None:
    source = dataclasses.replace(
        samples.snapshot().source,
        versions={"jax": "0.10.2", "flax": "0.12.8"},
        created="2026-03-04T05:06:07Z",
    )
    layout = {"model": "logical_mlp", "mesh": "2x4", "axes": ["data", "model"],
              "rules": [["batch", ["data"]], ["hidden", ["model"]]]}  # fmt: skip
    snapshot = dataclasses.replace(samples.snapshot(), source=source, layout=layout)
    figure = stamp.stamped_with(mesh_map(snapshot.arrays[1], snapshot.mesh), [subject.source_line(snapshot)])
    text = html.unescape(figure.layout.annotations[-1].text.replace("<br>", " "))
    for words in (
        *("MLP, logical axes", "data 2 × model 4", "batch → data, hidden → model"),
        *("emulated", "jax 0.10.2, flax 0.12.8", "2026-03-04 05:06"),
    ):
        assert words in text


@given(hostile.hostile_texts, st.integers(60, 1500))
@example("a" * 300 + "/" + "W" * 300, 200)
@example(", ".join(f"logical_axis_{n} → fsdp + tensor" for n in range(60)), 480)
def test_a_text_is_wrapped_without_loss(text: str, width: int) -> None:
    lines = labels.wrapped_px(text, width, stamp.TEXT_PX)
    assert all(labels.arial_px(line, stamp.TEXT_PX) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_ground_and_text_color() -> None:
    from inspector.figures import palette

    figure = mesh_map(samples.kernel(), samples.DEFAULT_MESH)
    for dark in (False, True):
        on = stamp.on_ground(figure, dark=dark)
        assert palette.contrast(on.layout.paper_bgcolor, on.layout.font.color) > 12
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_a_drawing_is_saved_in_the_colors_of_its_ground() -> None:
    canvas = Canvas()
    canvas.text(0, 10, "<name>")
    figure = stamp.figure_of(canvas.svg(300, 40, "a name"))
    for dark, (ground, text) in ((False, palette.LIGHT_PAGE), (True, palette.DARK_PAGE)):
        drawn = stamp.on_ground(stamp.stamped_with(figure, ["a line"]), dark=dark)
        (image,) = drawn.layout.images
        svg = base64.b64decode(image.source.partition(",")[2]).decode()
        assert f'color="{text}"' in svg and f"--ground:{ground}" in svg and "&lt;name&gt;" in svg
        assert drawn.layout.height > figure.layout.height
