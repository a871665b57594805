"""Ticks: labels that do not touch, and round numbers on logarithmic axes."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.figures import ticks

# Plotly's font at the size of tick labels, measured by hand: no digit is wider.
WIDEST_DIGIT_PX = 6.3


@given(
    low=st.floats(-12, 12),
    reach=st.floats(0.1, 14),
    length_px=st.floats(80, 900),
    upright=st.booleans(),
)
def test_logarithmic_labels_are_round_inside_and_do_not_touch(
    low: float, reach: float, length_px: float, upright: bool
) -> None:
    settings = ticks.logarithmic(low, low + reach, length_px, "{:g}".format, upright=upright)
    places, texts = settings["tickvals"], settings["ticktext"]
    assert all(low - 1e-9 <= math.log10(place) <= low + reach + 1e-9 for place in places)
    assert {f"{place:e}"[0] for place in places} <= {"1", "2", "5"}
    assert {float(text) for text in texts} == {float(f"{place:g}") for place in places}
    for (one, text), (other, after) in itertools.pairwise(zip(places, texts, strict=True)):
        apart_px = math.log10(other / one) / reach * length_px
        half_px = (len(text) + len(after)) / 2 * WIDEST_DIGIT_PX
        assert apart_px >= (11 if upright else half_px)


@pytest.mark.parametrize("digits", [(1,), None])
@pytest.mark.parametrize("length_px", [90, 200, 400, 800])
def test_powers_are_evenly_spaced(digits: tuple[int, ...] | None, length_px: float) -> None:
    places = ticks.logarithmic(1, 12.5, length_px, "{:.0e}".format, digits=digits)["tickvals"]
    steps = {round(math.log10(other / one), 6) for one, other in itertools.pairwise(places)}
    assert len(places) > 1 and len(steps) == 1
    base = 10 if digits else 2
    assert all(math.log(place, base) == pytest.approx(round(math.log(place, base))) for place in places)


def test_memory_has_whole_powers_of_two() -> None:
    settings = ticks.logarithmic(8.9, 10.2, 320, str, digits=None, upright=True)
    assert settings["tickvals"] == [2.0**30, 2.0**31, 2.0**32, 2.0**33]


@given(count=st.integers(1, 5000), length_px=st.floats(30, 900), upright=st.booleans())
def test_every_nth_label_has_room(count: int, length_px: float, upright: bool) -> None:
    names = list(map(str, range(count)))
    places, texts = ticks.every_nth(range(count), names, length_px / count, upright=upright)
    step = len(names) if len(places) < 2 else int(places[1])
    assert step & (step - 1) == 0 or len(places) < 2
    assert texts == [str(int(place)) for place in places] == names[::step]
    room = 11 if upright else len(names[-1]) * WIDEST_DIGIT_PX
    assert all((b - a) * length_px / count >= room - 1e-6 for a, b in itertools.pairwise(places))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=60), st.floats(40, 900))
def test_the_first_and_the_last_border_are_labelled(sizes: list[int], length_px: float) -> None:
    borders = [0, *itertools.accumulate(sizes)]
    px_per_unit = length_px / borders[-1]
    places, texts = ticks.of_borders(borders, list(map(str, borders)), px_per_unit)
    assert (places[0], places[-1]) == (0, borders[-1])
    assert texts == [str(int(place)) for place in places]
    room = len(str(borders[-1])) * WIDEST_DIGIT_PX
    inner = places[:-1] if len(places) > 2 else places[:1]
    assert all((b - a) * px_per_unit >= room - 1e-6 for a, b in itertools.pairwise(inner))


def test_texts_are_escaped_and_lines_are_kept() -> None:
    assert ticks.settings([0], ["a<b\nc"])["ticktext"] == ["a&lt;b<br>c"]
