"""The Assemble page in the browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import POLL_MS, Dashboard, cells
from tests.browser.test_first_page import cut_off

pytestmark = pytest.mark.nightly

FIGURES = ("assemble-good-host", "assemble-good-devices", "assemble-good-array")


@pytest.fixture
def open_assemble(open_dashboard):
    """Open the Assemble page from the Layout page."""

    def make(**options: object) -> Dashboard:
        dashboard = open_dashboard(**options)
        dashboard.go_to("Arrays from pieces")
        for key in FIGURES:
            dashboard.wait_for_figure(key)
        dashboard.settle()
        return dashboard

    return make


def choose(dashboard: Dashboard, name: str) -> None:
    """Click an option of a segmented control."""
    dashboard.main().get_by_text(name, exact=True).click()
    dashboard.settle()


def break_it(dashboard: Dashboard, title: str) -> None:
    """Choose a mistake from the list."""
    field = dashboard.kept("assemble:mistake").locator("input")
    # Scrolling closes an open list, and a click scrolls to its target.
    field.scroll_into_view_if_needed()
    dashboard.page.wait_for_timeout(4 * POLL_MS)
    field.click()
    dashboard.page.get_by_role("option", name=title).click()
    dashboard.settle()


def texts(dashboard: Dashboard, key: str) -> list[str]:
    return [text for text, _, _ in cells(dashboard.wait_for_figure(key)) if text]


def test_a_mistake_is_shown_and_removed(open_assemble) -> None:
    dashboard = open_assemble()
    assert sorted(map(int, texts(dashboard, "assemble-good-array"))) == list(range(64))
    expect(dashboard.alerts()).to_have_count(0)

    break_it(dashboard, "A piece of the wrong shape")
    dashboard.expect_alert("The piece for device 3 is 3×2")
    expect(dashboard.main()).to_contain_text("doesn't match the single device array shape (3, 2)")

    break_it(dashboard, "Two pieces swapped")
    dashboard.expect_alert("16 numbers on 2 devices (3, 4)")
    swapped = dashboard.wait_for_figure("assemble-broken-array")
    right = dashboard.wait_for_figure("assemble-good-array")
    moved = {text for text, _, _ in cells(swapped)[6:8]}
    assert moved == {"32", "33"} and len(swapped["layout"]["shapes"]) == 2
    # Each number has the color of its block.
    color = {text: color for text, _, color in cells(right)}
    assert all(color[text] == one for text, _, one in cells(swapped) if text)
    dashboard.screenshot("assemble_swapped")

    break_it(dashboard, "Nothing")
    expect(dashboard.alerts()).to_have_count(0)


def test_no_text_is_cut_off(open_assemble) -> None:
    dashboard = open_assemble()
    choose(dashboard, "Tensor-parallel batch")
    dashboard.wait_for_figure("assemble-resharded")
    break_it(dashboard, "Two pieces swapped")
    dashboard.wait_for_figure("assemble-broken-array")
    for window in dashboard.in_windows():
        dashboard.screenshot(f"assemble_{window}")
        assert cut_off(dashboard) == [], window
