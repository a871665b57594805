"""The tab *Improve* in the browser: the list, and the folded effects at both widths, compared on a click."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.nightly

SMALL = "?depth=64&layers=1&batch=16"


def test_a_change_opens_on_the_board_next_to_the_current_layout(open_dashboard) -> None:
    dashboard = open_dashboard(SMALL)
    dashboard.open_tab("Improve")
    expect(dashboard.main()).to_contain_text("changes tried on the train step")
    rows = dashboard.page.locator("[class*=st-key-row-improve-]")
    expect(rows.filter(has_text="traffic −").first).to_contain_text("Change")
    dashboard.keyed("effects_drawer").locator("summary").click()
    table = dashboard.keyed("effects").locator("canvas").first
    expect(table).to_be_visible()
    dashboard.page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
    box = rows.first.bounding_box()
    height = (dashboard.page.viewport_size or {"height": 0})["height"]
    assert box is not None and box["y"] < height - 150, "the list begins on the first screen"
    table.scroll_into_view_if_needed()
    dashboard.wait_for_stillness()
    box = table.bounding_box()
    assert box is not None
    # The boxes at the left edge of the canvas select rows; the first row is below the headings.
    dashboard.page.mouse.click(box["x"] + 15, box["y"] + 50)
    dashboard.click("effects_pin")
    expect(dashboard.main().get_by_role("heading", name="Compare")).to_be_visible()
    dashboard.settle()
    expect(dashboard.main().get_by_role("button", name="Data + tensor 2x4")).to_be_visible()
    expect(dashboard.main()).to_contain_text("Data + tensor 2x4 (baseline)")
