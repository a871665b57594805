"""Figures in a link: what is written is read, and anything else is refused in one sentence."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.assessment import Assessment, FindingCounts, MemoryNeed, Step, Traffic
from inspector.core.errors import InvalidInput
from inspector.core.linked_assessment import from_text, to_text
from inspector.machines.hardware import CHIPS

SECONDS = st.floats(1e-9, 1e6)
BYTES = st.integers(0, 2**62)


@st.composite
def assessments(draw) -> Assessment:
    seconds = draw(SECONDS)
    step = Step(
        seconds,
        draw(st.none() | st.just(seconds * 0.8)),
        draw(st.none() | st.just(seconds * 1.3)),
        draw(st.sampled_from(["measured", "predicted"])),
    )
    peak = draw(BYTES)
    need = MemoryNeed(
        peak, peak, draw(st.none() | st.just(peak)), draw(st.none() | BYTES),
        draw(st.sampled_from([True, False, None])),
    )  # fmt: skip
    return Assessment(
        draw(st.none() | st.sampled_from(list(CHIPS))),
        draw(st.none() | st.integers(1, 2**20)),
        draw(st.sampled_from(["measured", "compiled", "partitioned", "planned"])),
        None,
        draw(st.none() | st.just(step)),
        draw(st.none() | st.just(need)),
        draw(st.none() | BYTES.map(lambda size: Traffic(size, {}))),
        None,
        FindingCounts(),
    )


@given(assessments())
def test_a_link_has_the_figures_in_about_a_hundred_characters(own: Assessment) -> None:
    text = to_text(own)
    assert len(text) <= 140 and not set(text) & set(" ~&?#%,;")
    back = from_text(text, CHIPS)
    assert (back.chip, back.devices, back.basis) == (own.chip, own.devices, own.basis)
    assert (back.memory is None) == (own.memory is None)
    if own.memory is not None:
        for name in ("peak_bytes", "high", "capacity_bytes", "fits"):
            assert getattr(back.memory, name) == getattr(own.memory, name)
    assert (back.traffic and back.traffic.bytes) == (own.traffic and own.traffic.bytes)
    assert (back.step is None) == (own.step is None)
    if own.step is not None:
        assert back.step.kind == own.step.kind
        for name in ("seconds", "low", "high"):
            written, read = getattr(own.step, name), getattr(back.step, name)
            assert read == (None if written is None else pytest.approx(written, rel=1e-3))
    # What a link claims is written back as it came.
    assert to_text(back) == text


GOOD = "c_v5e_16_p_0.145_0.122_0.169_10_10_20_y_5"


@pytest.mark.parametrize(
    "text",
    [
        "", "_" * 11, GOOD + "_1", GOOD.replace("v5e", "<b>"), GOOD.replace("v5e", "abacus"),
        GOOD.replace("0.145", "nan"), GOOD.replace("0.145", "inf"), GOOD.replace("0.145", "-1"),
        GOOD.replace("0.145", "1e300"), GOOD.replace("_10_10_", "_1.5_10_"),
        GOOD.replace("_10_10_", f"_{2**70}_10_"), GOOD.replace("_16_", "_99999999999_"),
        GOOD.replace("_y_", "_z_"), GOOD.replace("c_", "z_"), GOOD.replace("_p_", "_-_"),
        GOOD.replace("_10_10_", "_\u0661_10_"), "x" * 10_000,
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    assert from_text(GOOD, CHIPS).step.seconds == 0.145
    with pytest.raises(InvalidInput) as refused:
        from_text(text, CHIPS)
    assert len(str(refused.value)) < 500


@given(st.text(alphabet="mcrn_-.0123456789evypu \u0661<", max_size=80))
def test_no_text_raises_another_error(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        from_text(text, CHIPS)
