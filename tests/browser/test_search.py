"""The Search page: a search of a small model, its picture, the reasons of one layout, and opening it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from inspector.machines import targets
from tests.browser.dashboard import Dashboard

pytestmark = pytest.mark.nightly

SMALL = "?target=tpu:v5e:2x2&mesh=4&axes=data&depth=64&layers=1&batch=16"


# Without it, the page has no field for compiles.
WITH_COMPILER = targets.missing_compiler(targets.parse("tpu:v5e:2x2")) is None


def partition_only(dashboard: Dashboard) -> None:
    """Compile nothing in the search."""
    if WITH_COMPILER:
        dashboard.type("Compiles, at most", "0")
        dashboard.page.wait_for_url("**search-budget=0*")


def test_a_search_shows_the_best_layouts_and_opens_one(open_dashboard) -> None:
    dashboard = open_dashboard(SMALL)
    dashboard.page.get_by_role("link", name="Search").click()
    expect(dashboard.main().get_by_role("heading", name="Search")).to_be_visible()
    dashboard.settle()
    partition_only(dashboard)
    dashboard.screenshot("search_before")
    dashboard.click("start_search")
    table = dashboard.keyed("search").locator("canvas").first
    expect(table).to_be_visible()
    expect(dashboard.main()).to_contain_text("is the best layout before a compile")
    dashboard.wait_for_figure("search_front")
    for window in dashboard.in_windows():
        dashboard.screenshot(f"search_{window}")
        assert not [one for one in dashboard.texts_drawn("search_front") if one["out"] > 1], window
    table.scroll_into_view_if_needed()
    dashboard.wait_for_stillness()
    box = table.bounding_box()
    assert box is not None
    expect(dashboard.keyed("row_open")).to_have_count(0)
    dashboard.page.mouse.click(box["x"] + 15, box["y"] + 85)  # selects the second row
    expect(dashboard.keyed("row_open")).to_be_visible()
    dashboard.screenshot("search_why")
    dashboard.click("row_open")
    expect(dashboard.page).to_have_url(re.compile("mesh="))
    expect(dashboard.field("Mesh")).to_be_visible()


def test_another_browser_sees_the_search_of_a_link(open_dashboard, open_tab, server) -> None:
    dashboard = open_dashboard(SMALL.replace("depth=64", "depth=32"))
    dashboard.go_to("Search")
    partition_only(dashboard)
    dashboard.click("start_search")
    dashboard.wait_for_figure("search_front")
    url = dashboard.page.url
    other = Dashboard(open_tab(), server.url)
    other.page.goto(url)
    other.wait_for_figure("search_front")
    assert other.page.url == url
    expect(other.main().get_by_role("button", name="Start search")).to_have_count(0)
    dashboard.page.reload()
    dashboard.wait_for_figure("search_front")
    if WITH_COMPILER:
        expect(dashboard.field("Compiles, at most")).to_have_value("0")


def test_a_search_belongs_to_all_tabs_of_its_browser_and_to_the_tab_after_a_reload(
    open_dashboard, server
) -> None:
    dashboard = open_dashboard("?model=transformer&layers=6&target=tpu:v5e:4x4&mesh=4x4&batch=32")
    dashboard.go_to("Search")
    partition_only(dashboard)
    dashboard.click("start_search")
    cancel = dashboard.keyed("cancel_search").get_by_role("button")
    expect(cancel).to_be_visible()
    dashboard.page.reload()
    expect(cancel).to_be_visible()
    other = Dashboard(dashboard.page.context.new_page(), server.url).open("?depth=64")
    other.go_to("Search")
    other.keyed("other_cancel-0").get_by_role("button").click()
    expect(other.keyed("other_cancel-0")).to_have_count(0)
    expect(cancel).to_have_count(0)
    other.page.close()
