"""The Restore page: the bytes that move between two layouts."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import Dashboard

pytestmark = pytest.mark.nightly

SMALL = "layers=2&depth=64"


@pytest.fixture
def open_restore(open_dashboard):
    """Open a layout, then the Restore page."""

    def make(query: str = SMALL, **options: object) -> Dashboard:
        dashboard = open_dashboard(f"?{query}", **options)
        dashboard.go_to("Restore and transfer")
        dashboard.wait_for_figure("transfer_map")
        dashboard.settle()
        return dashboard

    return make


def test_the_bytes_of_one_array_between_two_layouts(open_restore) -> None:
    dashboard = open_restore()
    expect(dashboard.field("New mesh")).to_have_value("4x2")
    dashboard.type("New mesh", "2x2")
    figure = dashboard.wait_for_figure(
        "transfer_map", lambda found: "only in the old layout" in str(found["layout"])
    )
    assert "devices 4, 5, 6, 7 only in the old layout" in str(figure["layout"])
    dashboard.field("Array").click()
    dashboard.page.get_by_role("option", name="params/DotReluDot_0/W2").click()
    dashboard.wait_for_figure(
        "transfer_map", lambda found: "DotReluDot_0/W2" in found["layout"]["title"]["text"]
    )
    expect(dashboard.main()).to_contain_text("24.0 KiB from 4 devices to 4 devices")

    # Fields stay while another page is open.
    dashboard.go_to("Layout")
    dashboard.wait_for_figure("block_map")
    dashboard.go_to("Restore and transfer")
    expect(dashboard.field("New mesh")).to_have_value("2x2")


def test_no_text_is_cut_off_or_too_small(open_restore) -> None:
    dashboard = open_restore()
    for window in dashboard.in_windows():
        dashboard.screenshot(f"restore_{window}")
        texts = dashboard.texts_drawn("transfer_map")
        assert texts and not [text for text in texts if text["out"] > 1 or text["px"] < 8], window
        sideways = "one => one.scrollWidth > one.clientWidth + 1"
        assert not dashboard.main().evaluate(sideways), f"it scrolls sideways at {window}"
