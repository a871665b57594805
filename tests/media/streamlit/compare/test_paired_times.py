"""The section that times layouts: a real timing, its texts, and Cancel."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inspector import layout as layouts
from inspector.layout.plan import plan
from inspector.records import snapshot
from inspector.tracing.model.abstract import abstract_state
from tests.media.streamlit.scripted_page import PATIENCE

SCRIPT = """
import streamlit as st
from inspector.records import snapshot
from inspector.media.streamlit.compare import board_comparison
pins = [(name, snapshot.read(path)) for name, path in st.session_state["pins"]]
board_comparison.show_times(pins, st.session_state["baseline"])
"""
NAMES = ["one", "<b>other</b>", "for a TPU"]
Opened = Callable[..., AppTest]


@pytest.fixture
def opened(tmp_path: Path, _shared_workers: None) -> Opened:
    """Draw the section with these pins, each given by the fields of its layout."""

    def draw(*pins: dict[str, str], baseline: int = 0) -> AppTest:
        paths = []
        for number, fields in enumerate(pins):
            layout = layouts.parse({"layers": "1", "depth": "16"} | fields).unwrap()
            paths.append((NAMES[number], str(tmp_path / f"{number}.json")))
            snapshot.write(plan(layout, abstract_state(layout)), paths[-1][1])
        page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
        page.session_state["pins"], page.session_state["baseline"] = paths, baseline
        return page.run()

    return draw


def words(page: AppTest) -> str:
    assert not page.exception, [error.value for error in page.exception]
    elements = (*page.markdown, *page.caption, *page.info, *page.error)
    return " ".join(element.value.replace("\\", "") for element in elements)


def finish(page: AppTest) -> None:
    """Draw the page again until the job has ended."""
    end = time.monotonic() + PATIENCE
    while page.session_state["asked:timing"].job is not None:
        assert time.monotonic() < end
        time.sleep(0.1)
        page.run()


@pytest.mark.nightly
def test_layouts_are_timed_and_compared(opened: Opened) -> None:
    page = opened({"mesh": "2x4"}, {"mesh": "2x2"}, {"target": "tpu:v5p:2x2x1", "mesh": "2x2"})
    assert "2 layouts in turn in one process with 8 emulated devices" in words(page)
    assert "for a TPU cannot be timed: its target is 'tpu:v5p:2x2x1'" in words(page)
    page.number_input(key="timing_rounds").set_value(6).run()
    page.button(key="timing_button").click().run()
    finish(page)
    said = words(page)
    assert "one and <b>other</b> ran once in each of 6 rounds" in said
    assert "Train step: <b>other</b> takes" in said and "Inference: <b>other</b> takes" in said
    assert "for a TPU was not timed" in said
    assert list(page.dataframe[0].value["Layout"]) == ["one", "<b>other</b>"] * 2
    assert page.number_input(key="timing_rounds").value == 6

    # The pins are reordered and an untimed one is added: nothing is timed again.
    one, other, _ = page.session_state["pins"]
    _, times = page.session_state["timing_result"]
    page.session_state["pins"] = [other, one]
    page.run()
    assert "Train step: one takes" in words(page)
    assert len(times.turns) == 6 * 2 * 2


@pytest.mark.nightly
def test_cancel_stops_the_timing(opened: Opened) -> None:
    page = opened({"mesh": "2x4", "layers": "64"}, {"mesh": "4x2", "layers": "64"})
    page.button(key="timing_button").click().run()
    page.button(key="cancel_timing").click().run()
    finish(page)
    assert "ancelled" in words(page)
    assert "timing_result" not in page.session_state


def test_each_layout_that_is_left_out_has_a_line(opened: Opened) -> None:
    page = opened({"mesh": "2x4"}, {"target": "plan"}, {"mesh": "4x2"})
    lines = page.caption[0].value.replace("\\", "").splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        "- <b>other</b> cannot be timed: its target is 'plan', but must be cpu."
    ]
