"""The menu of report files on a page: what it offers, and that nothing is made before it is asked for."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from inspector.media import report
from inspector.media.streamlit import picture_buttons, report_button
from tests.media import hostile
from tests.media.streamlit.scripted_page import PATIENCE

NAME = "<img src=x onerror=alert(1)> $x$ [a](b)"

SCRIPT = """
import streamlit as st
from inspector.media.streamlit import chart, report_button
from inspector.figures.overview import overview
from tests.media import hostile

pins = [("one", hostile.snapshot("a")), (st.session_state["name"], hostile.snapshot("b"))]
report_button.show(pins, key="report", baseline=1)
with chart.of(lambda: ['what it is of']):
    chart.draw(overview(pins[0][1].arrays, pins[0][1].mesh), "bytes", alt="Bytes")
chart.draw(overview(pins[0][1].arrays, pins[0][1].mesh), "unstamped", alt="Bytes")
"""


def opened(*menus: str) -> AppTest:
    page = AppTest.from_string(SCRIPT, default_timeout=PATIENCE)
    page.session_state["name"] = NAME
    for menu in menus:
        page.session_state[menu] = True
    page.run()
    assert not page.exception, [error.value for error in page.exception]
    return page


def test_a_closed_menu_has_nothing_in_it() -> None:
    page = opened()
    assert not page.get("download_button")
    # A figure that nobody knows the Snapshot of has no menu: its picture could not say what it is of.
    assert len(page.get("plotly_chart")) == 2


def test_an_open_menu_offers_every_form_and_names_the_baseline() -> None:
    page = opened("report:menu", "pictures")
    labels = [one.proto.label for one in page.get("download_button")]
    assert labels == ["HTML", "Markdown", "PNG", "SVG", "PNG", "SVG"]
    words = page.caption[0].value.replace("\\", "")
    assert words == f"Of {NAME}, one; {NAME} is the baseline."
    assert r"\<img" in page.caption[0].value


def test_without_a_browser_the_menu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nonexistent/chrome")
    page = opened("report:menu")
    assert [one.proto.label for one in page.get("download_button")] == ["HTML", "Markdown"]
    assert "none was found" in page.caption[-1].value


def test_what_a_picture_is_refused_for_is_kept_for_the_page() -> None:
    def fail():
        raise report.InvalidInput("no such figure")

    refused: dict[str, str] = {}
    make = picture_buttons._making(fail, "png", False, refused, "key")
    with pytest.raises(report.InvalidInput):
        make()
    assert refused == {"key": "no such figure"}


def test_the_whole_board_is_one_figure_with_every_answer() -> None:
    pins = [("one", hostile.snapshot("a")), (NAME, hostile.snapshot("a", (None, ("modela",))))]
    figure = report_button._board_picture(pins, None)
    texts = [text for trace in figure.data if trace.type == "scatter" for text in trace.text]
    assert "<b>one</b>" in texts and not [text for text in texts if "<img" in text]
    assert any("worse" in text or "better" in text for text in texts)
    assert [trace.type for trace in figure.data].count("heatmap") >= 2
    assert "2026-01-01" in figure.layout.annotations[-1].text
