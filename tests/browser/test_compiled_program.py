"""The compiled program in the browser: collectives, memory and time, and the chip in the link."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.nightly

SMALL = "depth=64&layers=2&steps=2"


@pytest.fixture
def ran(open_dashboard):
    dashboard = open_dashboard(f"?{SMALL}")
    dashboard.run()
    return dashboard


def test_links_between_collectives_and_arrays(ran):
    ran.open_tab("Communication")
    bars = ran.wait_for_figure("collective_bars")
    assert "data" in str(bars["layout"]["annotations"])
    ran.settle()
    # The table is a canvas: its rows are picked by the boxes at their left edge. The first one under the
    # heading sends most, which are the gradients.
    table = ran.keyed("collective_table:train_step").get_by_test_id("stDataFrame")
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    ran.page.mouse.click(box["x"] + 16, box["y"] + 35 + 18)
    array = ran.main().locator("[class*=st-key-moved-] button").first
    expect(array).to_be_visible()
    path = array.inner_text().strip()
    array.click()
    ran.open_tab("Summary")
    name = path.split("/")[-1]
    ran.wait_for_figure("block_map", lambda map: name in map["layout"]["title"]["text"])
    expect(ran.main().get_by_text("Collectives of this array")).to_be_visible()


def test_the_chip_is_in_the_link_and_in_every_tab(ran):
    ran.open_tab("Memory")
    ran.field("Chip").click()
    ran.page.get_by_role("option", name="NVIDIA H100 SXM").click()
    ran.wait_for_figure("memory_over_train_step", lambda figure: "H100" in str(figure["layout"]))
    ran.page.wait_for_url("**chip=h100*")
    ran.open_tab("Time")
    expect(ran.main().get_by_text("NVIDIA H100 SXM", exact=False).first).to_be_visible()
    ran.open_tab("Arrays", "By device")
    ran.open_tab("Memory")
    ran.wait_for_figure("memory_over_train_step", lambda figure: "H100" in str(figure["layout"]))
    ran.open_tab("Summary")
    ran.page.wait_for_url(lambda url: "tab=" not in url)
    ran.open(f"?{ran.query()}")
    ran.open_tab("Memory")
    ran.wait_for_figure("memory_over_train_step", lambda figure: "H100" in str(figure["layout"]))


def test_an_unknown_chip_shows_a_notice_and_the_default(open_dashboard):
    dashboard = open_dashboard("?chip=v99")
    dashboard.expect_alert("chip is 'v99', but must be one of")
    dashboard.expect_query("")
    dashboard.open_tab("Memory")
    expect(dashboard.field("Chip")).to_have_value("No chip")


def test_a_layout_that_does_not_fit_has_figures(open_dashboard):
    dashboard = open_dashboard("?depth=65536&layers=8&mesh=1x2&chip=v5e&target=plan")
    dashboard.open_tab("Memory")
    dashboard.expect_alert("too much")
    expect(dashboard.page.get_by_test_id("stException")).to_have_count(0)


def test_no_text_is_cut_off(open_dashboard):
    dashboard = open_dashboard(f"?{SMALL}&trace=true&chip=v5p")
    dashboard.run()
    figures = {
        "Communication": ("collective_bars",),
        "Memory": ("memory_over_train_step",),
        "Time": ("operation_times-train_step",),
    }
    for window in dashboard.in_windows():
        for tab, keys in figures.items():
            dashboard.open_tab(tab)
            for key in keys:
                dashboard.wait_for_figure(key)
            dashboard.screenshot(f"{tab.lower()}_{window}")
            dashboard.wait_for_stillness()
            for key in keys:
                cut = [one for one in dashboard.texts_drawn(key) if one["out"] > 1]
                assert cut == [], f"{key} at {window}"
