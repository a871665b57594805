"""The layout in the URL: links, the back button, and invalid or hostile links."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import WIDE, Dashboard, cells
from tests.browser.test_layout_changes import MARKUP, assert_no_markup, shape_of

SHARED = "mesh=4x2&rules=batch.data~embed.data~hidden.model&depth=512&scan=true"


def test_a_shared_link_opens_the_same_page(open_dashboard):
    dashboard = open_dashboard(f"?{SHARED}")
    dashboard.expect_query(SHARED)
    expect(dashboard.field("Mesh")).to_have_value("4x2")
    dashboard.expect_rules([("batch", "data"), ("embed", "data"), ("hidden", "model")])
    expect(dashboard.field("Depth")).to_have_value("512")
    expect(dashboard.field("Scan")).to_be_checked()
    expect(dashboard.alerts()).to_have_count(0)
    figure = dashboard.wait_for_figure("block_map")
    assert len({number for _, number, _ in cells(figure)}) == 8
    mesh_map = dashboard.wait_for_figure("mesh_map")
    dashboard.open(f"?{dashboard.query()}")
    assert dashboard.wait_for_figure("block_map")["data"] == figure["data"]
    assert dashboard.wait_for_figure("mesh_map")["data"] == mesh_map["data"]


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("fields", [("mesh", "batch", "target", MARKUP), ("axes", "rules"), ("model",)])
def test_markup_in_a_link_is_shown_as_text(open_tab, server, fields):
    dashboard = Dashboard(open_tab(), server.url)
    requests = []
    dashboard.page.on("request", lambda request: requests.append(request.url))
    dashboard.open("?" + "&".join(f"{quote(field)}={quote(MARKUP)}" for field in fields))
    dashboard.expect_alert("<b>bold</b>")
    # The page's own URL contains the other address too.
    assert_no_markup(dashboard, [url for url in requests if not url.startswith(dashboard.url)])


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("page", ["Open", "Library"])
def test_a_page_without_a_sidebar_has_the_whole_window(dashboard, page):
    dashboard.go_to(page)
    dashboard.settle()
    expect(dashboard.main().get_by_role("heading").first).to_be_visible()
    expect(dashboard.sidebar()).to_be_hidden()
    assert dashboard.main().bounding_box()["width"] == dashboard.page.viewport_size["width"]
    dashboard.go_to("Layout")
    expect(dashboard.field("Mesh")).to_be_visible()


def test_the_back_button_restores_the_layout(dashboard):
    # The URL changes after the figures, and an edit before that shares the entry of the one before.
    dashboard.open_tab("Arrays")
    expect(dashboard.page).to_have_url(re.compile("tab=arrays"))
    dashboard.type("Mesh", "4x2")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 2)
    expect(dashboard.page).to_have_url(re.compile("mesh=4x2"))
    dashboard.type("Mesh axes of rule 2", "data")
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 4)
    expect(dashboard.page).to_have_url(re.compile("rules="))
    dashboard.page.go_back()
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 2)
    expect(dashboard.field("Mesh axes of rule 2")).to_have_value("model")
    dashboard.page.go_back()
    dashboard.wait_for_figure("block_map", lambda figure: shape_of(figure) == (1, 4))
    expect(dashboard.field("Mesh")).to_have_value("2x4")
    dashboard.expect_query("")
    dashboard.settle()  # the URL is the browser's before the run of the page has ended
    dashboard.page.go_forward()
    dashboard.wait_for_figure("block_map", lambda figure: len(cells(figure)) == 2)
    expect(dashboard.field("Mesh")).to_have_value("4x2")


def test_back_keeps_tab_and_array(open_context, server):
    # A tab with a history of its own, which has 50 entries at most.
    dashboard = Dashboard(open_context(viewport=WIDE).new_page(), server.url)
    dashboard.open("?depth=64&layers=2")
    page = dashboard.page
    dashboard.open_tab("Arrays", "Table")
    rows = dashboard.keyed("array_table").get_by_test_id("stDataFrame")
    rows.scroll_into_view_if_needed()
    box = rows.bounding_box()
    page.mouse.click(box["x"] + 16, box["y"] + 35 + 3.5 * 35)  # the fourth row
    page.wait_for_url("**&array=*")
    layout, length = dashboard.query(), page.evaluate("history.length")
    array = dict(parse_qsl(layout))["array"]

    def expect_layout() -> None:
        dashboard.expect_query(layout)
        dashboard.wait_for_figure(
            "block_map", lambda map: map["layout"]["title"]["text"].endswith(array.split("/")[-1])
        )
        expect(dashboard.main().get_by_role("tab", selected=True)).to_have_text("Arrays")

    def expect_board() -> None:
        expect(dashboard.main().get_by_role("heading", name="Compare")).to_be_visible()
        page.wait_for_url("**/board?pin=*")
        dashboard.settle()

    dashboard.pin("A")
    dashboard.open_board()
    expect_board()
    assert page.evaluate("history.length") == length + 1, "a page and its URL are one entry"
    page.go_back()
    expect_layout()
    page.go_forward()
    expect_board()
    dashboard.go_to("Layout")
    expect_layout()
    page.go_back()
    expect_board()
    page.go_back()
    expect_layout()
    page.go_back()  # before the array was selected
    page.wait_for_url(lambda url: "array=" not in url and "tab=arrays" in url)
