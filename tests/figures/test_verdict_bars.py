"""The bars of a verdict: their lengths, their colors, and what is beyond the memory of a device."""

from __future__ import annotations

import pytest

from inspector.assessment import part_text
from inspector.figures import frame, labels, palette
from inspector.figures.verdict_bars import BAR_PX, verdict_bars
from inspector.records.assessment import MEMORY, LayoutFigures, MemoryNeed, Step, StepPart, StepTraffic
from inspector.records.assessment import STEP as STEP_TITLE
from inspector.text.formatting import bytes_text, share_text
from tests.figures import drawn

GIB = 2**30
PARTS = (
    StepPart("compute", 1.0),
    StepPart("memory", 2.0),
    StepPart("inside", 0.5, "fsdp", hidden=1.5, bytes=8 * GIB),
    StepPart("between", 4.0, "fsdp", bytes=GIB),
    StepPart("inside", 0.25, "fsdp+tensor"),
    StepPart("rest", 0.25),
)
STEP = Step(8.0, 7.0, 9.0, "predicted", parts=PARTS)
KINDS = {"state": 4 * GIB, "activations": 6 * GIB, "temporaries": 2 * GIB}
NEED = MemoryNeed(12 * GIB, 10 * GIB, 13 * GIB, 16 * GIB, True, "train_step", KINDS)
TOO_MUCH = MemoryNeed(12 * GIB, 12 * GIB, 12 * GIB, 8 * GIB, False, "train_step", KINDS)


def segments(figure) -> list[tuple[float, float, str]]:
    """Return (start, length, color) of what is drawn in bars, from the left."""
    return sorted(
        (bar["base"][0], bar["x"][0], bar["marker"]["color"])
        for bar in drawn.traces(figure, "bar")
        if bar["width"] == BAR_PX
    )


def test_segments_are_as_long_as_their_seconds() -> None:
    result = segments(verdict_bars([LayoutFigures(step=STEP)], width_px=900))
    assert len(result) == len(PARTS)
    lengths = [length + 1 for _, length, _ in result]  # with the gap to the next one
    assert lengths == pytest.approx([part.seconds * sum(lengths) / 8 for part in PARTS], rel=1e-3)
    hues = {palette.color_of_axis("fsdp"), palette.color_of_axis("tensor")}
    assert [color in hues for _, _, color in result] == [part.is_communication for part in PARTS]


def test_hidden_communication_is_a_thin_ghost() -> None:
    figure = verdict_bars([LayoutFigures(step=STEP)], width_px=900)
    thin = [bar for bar in drawn.traces(figure, "bar") if bar["width"] != BAR_PX]
    (ghost,) = thin
    full = next(bar for bar in drawn.traces(figure, "bar") if bar["width"] == BAR_PX)
    assert ghost["width"] < BAR_PX / 3 and ghost["opacity"] < 1
    assert (ghost["x"][0] + 1) / (full["x"][0] + 1) == pytest.approx(1.5, rel=0.01)
    assert ghost["marker"]["color"] == palette.color_of_axis("fsdp")


def test_the_legend_has_every_color_of_hidden_communication() -> None:
    """More is hidden than the work takes only if transfers over several mesh axes run at once."""
    work, tensor = StepPart("compute", 1.0), StepPart("inside", 0.1, "tensor", hidden=0.8)
    legends = []
    for hidden in (0.1, 0.5):
        parts = (work, tensor, StepPart("inside", 0.1, "fsdp", hidden=hidden))
        layout = LayoutFigures(step=Step(1.2, None, None, "predicted", parts=parts))
        texts = [note.text for note in verdict_bars([layout], width_px=900).layout.annotations]
        legends += [entry for text in texts for entry in text.split("   ") if "hidden" in entry]
    for legend in legends:
        colors = {palette.color_of_axis(axis) for axis in ("fsdp", "tensor")}
        assert {color for color in colors if f"color:{color}" in legend} == colors
    assert ["2 axes at once" in legend for legend in legends] == [False, True]


def test_the_legend_has_the_ends_of_intervals() -> None:
    said = " ".join(drawn.texts(verdict_bars([LayoutFigures(step=STEP, memory=NEED)], width_px=900)))
    assert "10.0–13.0 GiB" in said and STEP.interval in said
    several = [LayoutFigures("one", STEP, NEED), LayoutFigures("two", STEP, NEED)]
    assert "10.0–13.0 GiB" not in " ".join(drawn.texts(verdict_bars(several, width_px=1200)))


@pytest.mark.parametrize("width_px", [480, 960])
def test_the_ends_of_an_interval_are_between_the_texts_of_the_bar_and_of_the_legend(width_px: int) -> None:
    one = [LayoutFigures(step=STEP, memory=NEED)]
    for layouts in (one, [LayoutFigures("one", STEP, NEED), LayoutFigures("two", STEP, TOO_MUCH)]):
        figure = verdict_bars(layouts, width_px=width_px)
        ends = [shape for shape in figure.layout.shapes if shape.line.color != palette.BAD]
        written = [bar for bar in drawn.traces(figure, "bar") if bar.get("text") and bar["text"][0]]
        assert ends and written
        for end in ends:
            upper, lower = sorted((end.y0, end.y1))
            bars = [bar["y"][0] for bar in written if bar["y"][0] < lower]
            assert upper >= max(bars) + 0.6 * frame.TICK_PX
            notes = [note for note in figure.layout.annotations if note.y > upper]
            assert all(note.y >= lower for note in notes)


@pytest.mark.parametrize("page", ["#FFFFFF", "#14171A"])
def test_an_interval_can_be_seen_on_greys_and_on_both_themes(page: str) -> None:
    figure = verdict_bars([LayoutFigures(memory=NEED)], width_px=900)
    colors = {shape.line.color for shape in figure.layout.shapes} - {palette.BAD}
    below = {color for *_, color in segments(figure)} | {page}
    for color in below:
        assert max(palette.contrast(color, line) for line in colors) > 3


def test_memory_beyond_the_hbm_of_a_device_is_red() -> None:
    fits = segments(verdict_bars([LayoutFigures(memory=NEED)], width_px=900))
    assert len(fits) == 3 and palette.BAD not in {color for *_, color in fits}
    figure = verdict_bars([LayoutFigures(memory=TOO_MUCH)], width_px=900)
    red = [(start, length) for start, length, color in segments(figure) if color == palette.BAD]
    whole = sum(length + 1 for _, length, _ in segments(figure))
    assert sum(length + 1 for _, length in red) == pytest.approx(whole * 4 / 12, rel=0.01)
    (line,) = [shape for shape in figure.layout.shapes if shape.line.color == palette.BAD]
    assert line.x0 == pytest.approx(min(start for start, _ in red), abs=0.1)


def test_layouts_share_a_scale_and_have_their_names() -> None:
    double = Step(16.0, None, None, "predicted", parts=(StepPart("compute", 16.0),))
    figure = verdict_bars(
        [LayoutFigures("one", STEP, NEED), LayoutFigures("two", double, TOO_MUCH)], width_px=1200
    )
    longest = max(length for _, length, _ in segments(figure))
    bars = drawn.traces(figure, "bar")
    (compute,) = [bar for bar in bars if bar["customdata"][0].startswith("<b>matrix products: 16")]
    assert compute["x"][0] == longest
    said = " ".join(drawn.texts(figure))
    assert "one" in said and "two" in said
    assert verdict_bars([LayoutFigures("one")], width_px=900) is None
    assert verdict_bars([], width_px=900) is None


@pytest.mark.parametrize("width_px", [320, 480, 960])
def test_names_are_text_and_lines_fit(width_px: int) -> None:
    hostile = Step(1.0, None, None, "at least", "x", parts=(StepPart("inside", 1.0, "<u>x</u>+b"),))
    figure = verdict_bars([LayoutFigures("<i>one</i>", hostile, NEED)], width_px=width_px)
    texts = " ".join(drawn.texts(figure))
    assert "<i>one" not in texts and "<u>x" not in texts and "&lt;u&gt;x" in texts
    for bar in drawn.traces(figure, "bar"):
        assert bar["base"][0] + bar["x"][0] <= width_px
        if bar.get("text") and bar["text"][0]:
            assert labels.width_px(bar["text"][0], 11) <= bar["x"][0]


def test_parts_say_where_they_send_if_slices_are_crossed() -> None:
    names = [part_text(part, True) for part in PARTS]
    assert len(set(names)) == len(names)
    assert part_text(PARTS[2]) == "fsdp"


def test_traffic_between_slices_is_apart_and_dotted() -> None:
    sent = StepTraffic(10 * GIB, {"fsdp": 8 * GIB, "fsdp+tensor": 2 * GIB}, None, {"fsdp": 2 * GIB})
    figure = verdict_bars([LayoutFigures("a", traffic=sent)], width_px=900)
    bars = drawn.traces(figure, "bar")
    sizes = [bar["x"][0] + 1 for bar in bars]
    assert sizes == pytest.approx([sum(sizes) * share for share in (0.6, 0.2, 0.2)], rel=0.01)
    assert [bar["marker"]["pattern"]["shape"] for bar in bars] == ["", palette.DOTS, palette.STRIPES]


def test_marks_and_unknown_figures_are_said_above_the_bars() -> None:
    marks = {MEMORY: ("✗ +50% worse", "✗ +50%")}
    rows = [
        LayoutFigures("a", STEP, NEED),
        LayoutFigures("b, with a long name", None, NEED, None, marks, {STEP_TITLE: "no program"}),
    ]
    wide, narrow = (
        " ".join(annotation.text for annotation in verdict_bars(rows, width_px=width).layout.annotations)
        for width in (1400, 700)
    )
    assert "✗ +50% worse" in wide and "unknown: no program" in wide
    assert "✗ +50%" in narrow and "worse" not in narrow


def test_measured_steps_are_not_mixed_with_predicted_ones() -> None:
    ran = Step(3.0, 2.0, 4.0, "measured")
    figure = verdict_bars([LayoutFigures("predicted", STEP), LayoutFigures("ran", ran)], width_px=900)
    said = " ".join(drawn.texts(figure))
    assert f"{STEP_TITLE}, measured" in said
    (bar,) = [trace for trace in drawn.traces(figure, "bar") if trace["marker"]["color"] == palette.MARK]
    longest = max(length for _, length, _ in segments(figure))
    assert bar["x"][0] >= longest, "each kind has a scale of its own"


@pytest.mark.parametrize("share", [1e-6, 0.001, 0.01, 0.2])
@pytest.mark.parametrize("values", [False, True])
def test_a_bar_far_below_its_limit_is_visible_and_has_its_number(share: float, values: bool) -> None:
    peak = int(share * 16 * GIB)
    need = MemoryNeed(
        peak, peak, peak, 16 * GIB, True, "train_step", {"state": peak // 2, "temporaries": peak // 2}
    )
    figure = verdict_bars([LayoutFigures(memory=need)], values=values, width_px=900)
    assert figure is not None
    assert sum(length for _, length, _ in segments(figure)) >= 3
    end = max(start + length for start, length, _ in segments(figure))
    beside = [
        note.text for note in figure.layout.annotations if end < note.x < end + 10 and "HBM" in note.text
    ]
    assert bool(beside) == (share < 0.05)
    if beside:
        assert share_text(peak / (16 * GIB)) in beside[0] and (bytes_text(peak) in beside[0]) != values
