"""The timeline of the tab *Time*: free zoom and pan, which survive what the page does meanwhile."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from benchmarks.processes import until
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from tests.browser.dashboard import PATIENCE, Dashboard
from tests.prediction.schedules import long_step

pytestmark = pytest.mark.nightly

KEY = "timeline"
PIXEL = 1 / 1_000  # of the width, at most; the browser rounds the place of the pointer


def opened_step(open_tab, server, step: Snapshot) -> Dashboard:
    dashboard = Dashboard(open_tab(), server.url)
    dashboard.page.goto(f"{server.url}/open")
    content = snapshot.dumps(step).encode()
    file = {"name": "long.json", "mimeType": "application/json", "buffer": content}
    dashboard.page.locator("input[type=file]").first.set_input_files(file)
    dashboard.open_tab("Time")
    dashboard.wait_for_figure(KEY)
    dashboard.wait_for_stillness()
    return dashboard


@pytest.fixture
def opened(open_tab, server) -> Dashboard:
    return opened_step(open_tab, server, long_step())


def test_a_step_that_is_mostly_one_loop_begins_with_one_iteration(open_tab, server) -> None:
    dashboard = opened_step(open_tab, server, long_step(40, times=1_000))
    start, end = period(dashboard)
    dashboard.main().get_by_role("button", name="Whole step").click()
    dashboard.wait_for_figure(KEY, lambda figure: _length(figure) > 10 * (end - start))


def plot(dashboard: Dashboard) -> Locator:
    return dashboard.page.locator(f".st-key-{KEY} .nsewdrag").first


def point(dashboard: Dashboard, share: float) -> tuple[float, float]:
    """Return the place on the row of the core at this share of the width."""
    plot(dashboard).scroll_into_view_if_needed()
    box = plot(dashboard).bounding_box()
    assert box is not None
    return box["x"] + share * box["width"], box["y"] + box["height"] / 2


def period(dashboard: Dashboard) -> tuple[float, float]:
    low, high = dashboard.wait_for_figure(KEY)["layout"]["xaxis"]["range"]
    return low, high


def names(dashboard: Dashboard) -> set[str]:
    """Return the operations that have a bar of their own."""
    data = dashboard.wait_for_figure(KEY)["data"]
    return {picked for trace in data for picked, _ in trace["customdata"] if isinstance(picked, str)}


def wait_for_period(dashboard: Dashboard, low: float, high: float) -> None:
    near = PIXEL * (high - low)

    def is_shown(figure: dict) -> bool:
        start, end = figure["layout"]["xaxis"]["range"]
        return abs(start - low) < near and abs(end - high) < near

    dashboard.wait_for_figure(KEY, is_shown)


def zoom(dashboard: Dashboard, share: float, turns: int) -> None:
    """Turn the wheel at a place of the timeline; up zooms in."""
    dashboard.page.mouse.move(*point(dashboard, share))
    for _ in range(abs(turns)):
        dashboard.page.mouse.wheel(0, -200 if turns > 0 else 200)
        dashboard.page.wait_for_timeout(20)
    before = (0.0, 0.0)
    while (after := period(dashboard)) != before:  # a busy machine applies the turns one by one
        before = after
        dashboard.page.wait_for_timeout(400)
    dashboard.settle()


def test_the_wheel_zooms_down_to_one_operation(opened: Dashboard) -> None:
    before, whole = names(opened), period(opened)
    zoom(opened, 0.3, 40)
    low, high = period(opened)
    pointed = whole[0] + 0.3 * (whole[1] - whole[0])
    shown = low + 0.3 * (high - low)
    assert shown == pytest.approx(pointed, abs=PIXEL * whole[1]), "around the pointer"
    assert high - low < 0.05 * (whole[1] - whole[0])
    opened.wait_for_figure(KEY, lambda _: len(names(opened) - before) > 20)
    opened.page.mouse.click(*point(opened, 0.5))
    expect(opened.main()).to_contain_text(re.compile(r"executions? in a step:"))
    assert period(opened) == pytest.approx((low, high)), "a click changes nothing"

    opened.open_tab("Memory")
    opened.open_tab("Time")
    wait_for_period(opened, low, high)
    opened.page.mouse.dblclick(*point(opened, 0.5))
    wait_for_period(opened, *whole)


def test_dragging_and_keys_move_the_period(opened: Dashboard) -> None:
    whole = period(opened)
    zoom(opened, 0.5, 20)
    low, high = period(opened)
    length = high - low
    x, y = point(opened, 0.5)
    box = plot(opened).bounding_box()
    assert box is not None
    opened.page.mouse.move(x, y)
    opened.page.mouse.down()
    opened.page.mouse.move(x - box["width"] / 10, y, steps=5)
    opened.page.mouse.up()
    wait_for_period(opened, low := low + length / 10, high := high + length / 10)
    for key, start, end in (
        ("d", low + length / 4, high + length / 4),
        ("a", low, high),
    ):
        opened.page.keyboard.press(key)
        wait_for_period(opened, start, end)
    opened.page.mouse.move(x, y)
    opened.page.keyboard.press("w")
    opened.wait_for_figure(KEY, lambda figure: _length(figure) == pytest.approx(length / 2))
    for _ in range(20):
        opened.page.keyboard.press("s")
    wait_for_period(opened, *whole)


def test_a_bar_of_several_operations_and_the_buttons_zoom(opened: Dashboard) -> None:
    whole = period(opened)
    merged = [
        picked
        for trace in opened.wait_for_figure(KEY)["data"]
        for picked, _ in trace["customdata"]
        if not isinstance(picked, str)
    ]
    start, end = next(one for one in merged if one[0] > 0.6 * whole[1])
    opened.page.mouse.click(*point(opened, (start + end) / 2 / whole[1]))
    wait_for_period(opened, start, end)
    opened.main().get_by_role("button", name="Whole step").click()
    wait_for_period(opened, *whole)
    opened.main().get_by_role("button", name=re.compile("One iteration")).click()
    opened.wait_for_figure(KEY, lambda figure: 0 < _length(figure) < 0.2 * whole[1])


def test_the_page_scrolls_where_nothing_is_left_to_zoom_out(opened: Dashboard) -> None:
    opened.page.set_viewport_size({"width": 1440, "height": 500})
    opened.wait_for_stillness()
    main, whole = opened.main(), period(opened)
    opened.page.mouse.move(*point(opened, 0.5))
    before = main.evaluate("main => main.scrollTop")
    opened.page.mouse.wheel(0, 150)
    until(lambda: main.evaluate("main => main.scrollTop") > before, "the page scrolling", PATIENCE)
    assert period(opened) == whole


def _length(figure: dict) -> float:
    low, high = figure["layout"]["xaxis"]["range"]
    return high - low
