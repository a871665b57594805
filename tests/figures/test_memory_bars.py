"""The memory bars: segments that add up to what the program needs, and the capacity."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.array_groups import ARRAY_GROUPS
from inspector.core.formatting import bytes_text
from inspector.core.program_names import title
from inspector.core.snapshot import GroupUse, MemoryUse
from inspector.figures import frame
from inspector.figures.memory_bars import SHARED, memory_bars
from inspector.machines.prediction.memory import (
    NEEDED,
    OUTPUTS,
    OUTPUTS_AND_TEMPORARIES,
    Breakdown,
    Part,
    segments,
)
from tests.figures import drawn

MIB = 2**20


def program(name: str = "train_step", scale: int = MIB, **changed: int | bool | None) -> Breakdown:
    held = {"aliased": 12, "temporaries": 6, "code": 1, "peak": 17}
    figures = {key: number * scale for key, number in held.items()} | changed
    return Breakdown(
        name,
        (Part("params", 2, 4 * scale), Part("opt_state", 4, 8 * scale), Part("batch", 1, scale)),
        (Part("params", 2, 4 * scale), Part("opt_state", 4, 8 * scale), Part(None, 0, 208)),
        code_on_device=bool(figures.pop("code_on_device", False)),
        donatable=12 * scale,
        **figures,
    )


SIZES = st.integers(0, 2**40)


@given(
    arguments=st.dictionaries(st.sampled_from(list(ARRAY_GROUPS)), SIZES, max_size=4),
    rest=SIZES, outputs=SIZES, temporaries=SIZES, code=SIZES, share=st.floats(0, 1), on=st.booleans(),
)  # fmt: skip
def test_segments_add_up_to_the_total(
    arguments: dict[str, int],
    rest: int,
    outputs: int,
    temporaries: int,
    code: int,
    share: float,
    on: bool,
) -> None:
    aliased = int(outputs * share)
    breakdown = Breakdown(
        "p", (*(Part(group, 1, n) for group, n in arguments.items()), Part(None, 0, rest)),
        (Part("output", 1, outputs),), aliased, temporaries, code, None, on, 0,
    )  # fmt: skip
    result = segments(breakdown)
    assert sum(size for _, size in result) == breakdown.total
    figure = memory_bars([breakdown])
    assert (figure is None) == (not result)


GROUPS = ("params", "batch", "activation", "temporary")


@given(
    held=st.lists(SIZES, min_size=len(GROUPS), max_size=len(GROUPS)), peak=SIZES, code=SIZES,
    on=st.booleans(), aliased=SIZES, temporaries=SIZES,
)  # fmt: skip
def test_parts_add_up_to_what_is_needed(
    held: list[int], peak: int, code: int, on: bool, aliased: int, temporaries: int
) -> None:
    """Whatever the schedule and the compiler say of the peak, and whether the schedule is known."""
    groups = tuple(GroupUse(name, (size,)) for name, size in zip(GROUPS, held, strict=True))
    use = MemoryUse(1, (0,), ("forward",), groups, 0, ())
    for known in (use, None):
        breakdown = Breakdown(
            "p", (Part("params", 1, held[0]), Part("batch", 1, held[1])), (Part(None, 0, aliased),),
            aliased, temporaries, code, peak, on, 0, known,
        )  # fmt: skip
        assert sum(size for _, size in breakdown.parts) == breakdown.needed
        assert all(size > 0 for _, size in breakdown.parts) or breakdown.needed == 0
        # The compiler counts memory inside of the chip in some peaks, which no total has.
        assert breakdown.needed <= breakdown.total and breakdown.needed <= peak + (code if on else 0)
        if known is not None and sum(held) == peak and breakdown.needed == peak + (code if on else 0):
            shown = dict(breakdown.parts)
            assert [shown.get(name, 0) for name in ("parameters", "batch")] == held[:2]


@pytest.mark.parametrize("width", [340, 480, 960, 1040])
def test_bars_are_contiguous(width: int) -> None:
    figure = memory_bars([program(), program("apply", aliased=0)], width_px=width)
    bars = [bar for bar in figure.data if bar.type == "bar" and bar.name != SHARED]
    for row in {y for bar in bars for y in bar.y}:
        stretches = sorted(
            (bar.base[i], bar.base[i] + bar.x[i]) for bar in bars for i, y in enumerate(bar.y) if y == row
        )
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(stretches))
    ends = [b + x for bar in bars for b, x in zip(bar.base, bar.x, strict=True)]
    # All but the 208 bytes of the tuple's table, which take no pixel of the bar that shares its outputs.
    assert max(ends) == program("apply", aliased=0).needed
    assert figure.layout.xaxis.range[1] > max(ends)
    assert figure.layout.width == width


def test_the_text_alternative_has_the_amount_of_each_program() -> None:
    breakdown = program()
    said = frame.alternative(memory_bars([breakdown]), "Memory")
    assert (
        said.startswith("Memory. ") and f"{title(breakdown.program)}: {bytes_text(breakdown.needed)}" in said
    )


def test_invisible_segments_have_no_legend_entry() -> None:
    names = [trace.name for trace in memory_bars([program(peak=None)]).data]
    assert OUTPUTS not in names, "only 208 of its bytes are its own"
    assert names == [
        ARRAY_GROUPS["params"].heading,
        ARRAY_GROUPS["opt_state"].heading,
        ARRAY_GROUPS["batch"].heading,
        "temporaries",
        SHARED,
    ]
    peak = [trace.name for trace in memory_bars([program()]).data]
    assert peak[-2:] == [OUTPUTS_AND_TEMPORARIES, SHARED]


def test_the_strip_has_the_length_of_shared_outputs() -> None:
    (strip,) = [t for t in memory_bars([program(), program("apply", aliased=0)]).data if t.name == SHARED]
    assert list(strip.x) == [12 * MIB]
    assert SHARED not in [t.name for t in memory_bars([program(aliased=0)]).data]


def test_the_capacity_crosses_every_bar_and_no_heading() -> None:
    figure = memory_bars([program(), program("apply", aliased=0)], 16 * MIB, "TPU v5e")
    stretches = [(line.y0, line.y1) for line in figure.layout.shapes]
    bars = [bar for bar in figure.data if bar.type == "bar"]
    for bar in bars:
        for y in bar.y:
            assert any(start < y - bar.width / 2 and stop > y + bar.width / 2 for start, stop in stretches)
    headings = [
        note.y for note in figure.layout.annotations if note.text.startswith(("Train step", "Inference"))
    ]
    assert len(headings) == 2
    half_a_line_px = 8
    for y in headings:
        assert not any(start < y + half_a_line_px and stop > y - half_a_line_px for start, stop in stretches)


def test_hatched_segments_have_no_text() -> None:
    refused = Breakdown("train_step", (), (), None, None, None, 96 * 2**30, False, None)
    (bar,) = [one for one in memory_bars([refused], 16 * 2**30, "TPU v5e").data if one.type == "bar"]
    assert bar.name == NEEDED and bar.marker.pattern.shape == "/" and bar.text is None


def test_the_capacity_is_a_line_or_a_note() -> None:
    near = memory_bars([program()], 16 * MIB, "TPU v5e")
    assert {x for line in near.layout.shapes for x in (line.x0, line.x1)} == {16 * MIB}
    assert near.layout.xaxis.range[1] > 16 * MIB
    assert "TPU v5e: 16.0 MiB" in drawn.texts(near)
    above = memory_bars([program()], 40 * MIB, "TPU v5e")
    assert above.layout.xaxis.range[1] > above.layout.shapes[0].x0 == 40 * MIB
    far = memory_bars([program()], 1700 * MIB, "TPU v5e", width_px=960)
    assert not far.layout.shapes
    assert "the 1.7 GiB of one TPU v5e chip are 100 times the longest bar" in drawn.texts(far)
    assert not memory_bars([program()]).layout.shapes


def test_code_is_drawn_if_it_uses_device_memory() -> None:
    assert "code" not in dict(segments(program()))
    assert segments(program(code_on_device=True))[-1] == ("code", MIB)


def test_unknown_memory_is_named_and_not_drawn() -> None:
    figure = memory_bars([program(temporaries=None, peak=None)], width_px=960)
    assert figure is None or "unknown" in " ".join(drawn.texts(figure))
    figure = memory_bars([program(temporaries=None)], width_px=960)
    assert "Train step  <b>17.0 MiB</b>" in drawn.texts(figure)
    assert "temporaries" not in [trace.name for trace in figure.data]


def test_names_are_text() -> None:
    figure = memory_bars([program("<b>p</b>")], 16 * MIB, "<i>chip</i>")
    assert not any("<b>p" in text or "<i>" in text for text in drawn.texts(figure))


def test_nothing_known_is_no_figure() -> None:
    assert memory_bars([]) is None
    nothing = Breakdown("p", (), (), None, None, None, None, False, None)
    assert memory_bars([nothing]) is None


def test_a_program_that_does_not_fit_shows_the_needed_bytes() -> None:
    refused = Breakdown("train_step", (), (), None, None, None, 48 * MIB, False, 0)
    figure = memory_bars([refused], 16 * MIB, "TPU v5e", width_px=960)
    assert figure is not None
    (bar,) = [trace for trace in figure.data if trace.type == "bar"]
    assert (bar.name, list(bar.x), list(bar.base)) == (NEEDED, [48 * MIB], [0])
    assert "does not fit, needs 48.0 MiB" in str(figure.layout.annotations)
    assert figure.layout.shapes[0].x0 == 16 * MIB  # the capacity, inside the bar
