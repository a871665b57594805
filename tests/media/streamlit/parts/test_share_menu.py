"""The dialogs that download reports and pictures."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from inspector.media import report
from inspector.media.streamlit.parts import downloads
from inspector.media.streamlit.session import screenshot_mode
from tests.media import hostile
from tests.media.streamlit.drawn_figures import figures
from tests.media.streamlit.scripted_page import PATIENCE

NAME = "<img src=x onerror=alert(1)> $x$ [a](b)"

SCRIPT = """
import streamlit as st
from inspector.media.streamlit.parts import chart, downloads
from inspector.figures.block_map import block_map
from tests.media import hostile

pins = [("one", hostile.snapshot("a")), (st.session_state["name"], hostile.snapshot("b"))]
downloads.show_reports(pins, key="report", baseline=1)
with chart.of(lambda: ['its provenance']):
    chart.draw(block_map(pins[0][1].arrays[0], pins[0][1].mesh), "bytes", alt="Bytes")
chart.draw(block_map(pins[0][1].arrays[0], pins[0][1].mesh), "unstamped", alt="Bytes")
"""


def opened(*buttons: str) -> AppTest:
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.session_state["name"] = NAME
    page.run()
    for button in buttons:
        page.button(key=button).click().run()
    assert not page.exception, [error.value for error in page.exception]
    return page


def labels(page: AppTest) -> list[str]:
    return [one.proto.label for one in page.get("download_button")]


def test_a_page_has_all_forms_and_the_baseline() -> None:
    page = opened()
    assert labels(page) == ["HTML", "Markdown", "PNG", "SVG"]
    assert page.caption[0].value.replace("\\", "") == f"Report (baseline: {NAME})"
    assert r"\<img" in page.caption[0].value
    # The figure outside `chart.of` has no provenance, so it has no Pictures button.
    assert len(figures(page)) == 2
    assert [button.key for button in page.button] == ["pictures"]
    assert labels(opened("pictures"))[-2:] == ["PNG", "SVG"]


def test_a_missing_browser_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nonexistent/chrome")
    page = opened()
    assert labels(page) == ["HTML", "Markdown"]
    assert "none was found" in page.caption[-1].value


def test_the_page_shows_why_a_picture_failed() -> None:
    def fail():
        raise report.InvalidInput("no such figure")

    problems: dict[str, str] = {}
    with pytest.raises(report.InvalidInput):
        downloads._picture(fail, "png", False, problems, "key")
    assert problems == {"key": "no such figure"}


def test_the_picture_has_every_layout_and_its_provenance() -> None:
    pins = [("one", hostile.snapshot("a")), (NAME, hostile.snapshot("a", (None, ("modela",))))]
    figure = report.picture(pins, None, screenshot_mode.WIDTH_PX)
    texts = [annotation.text for annotation in figure.layout.annotations]
    assert sum(text.startswith("one (baseline)") for text in texts) == 3
    assert not [text for text in texts if "<img" in text]
    assert {trace.type for trace in figure.data} == {"bar"}
    assert "2026-01-01" in texts[-1]
