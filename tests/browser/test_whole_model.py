"""The whole model on a page: what a click opens, what the pointer lights, and what an edit shows."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import WIDE

TILE = '.st-key-whole_model .tile[data-path="{}"]'


def test_a_click_on_an_array_selects_it(dashboard):
    dashboard.page.locator(TILE.format("params/DotReluDot_0/W2") + " .held").click()
    dashboard.wait_for_figure("block_map", lambda figure: "W2" in figure["layout"]["title"]["text"])


def test_a_click_on_a_move_opens_its_collective(dashboard):
    move = dashboard.page.locator(".st-key-whole_model .move").first
    expect(move).to_be_visible()
    move.locator("circle").first.click()
    expect(dashboard.main().get_by_text("groups of").first).to_be_visible()


def test_a_click_on_a_device_fills_its_blocks(dashboard):
    held = dashboard.page.locator(TILE.format("params/DotReluDot_0/W2") + " .held")
    before = held.get_attribute("y")
    dashboard.page.locator('.st-key-whole_model .device[data-position="0"]').click()
    expect(held).not_to_have_attribute("y", before)


def test_a_rule_under_the_pointer_lights_its_cuts(dashboard):
    dashboard.field("Mesh axes of rule 2").hover()
    drawing = dashboard.page.locator(".st-key-whole_model .drawing")
    expect(drawing).to_have_class("drawing lit")
    lit = drawing.locator("line.cut.on-axis")
    assert {line.get_attribute("data-rule") for line in lit.all()} == {"hidden"}
    dashboard.field("Batch").hover()
    expect(drawing).to_have_class("drawing")


def test_cuts_that_an_edit_changed_are_shown_dashed(dashboard):
    dashboard.type("Mesh axes of rule 2", "data")
    old = dashboard.page.locator(TILE.format("params/DotReluDot_0/W2") + " .was line.cut")
    expect(old).to_have_count(3)
    expect(old).to_have_count(0, timeout=15_000)


# The visible texts of the page below its navigation, those of pictures too.
_TEXT = """() => {
    const main = document.querySelector('[data-testid=stMain]'), texts = [];
    const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const parent = walker.currentNode.parentElement, box = parent.getBoundingClientRect();
        if (parent.closest('style, script, title, [data-testid=stIconMaterial]')) continue;
        if (box.width && box.height && parent.checkVisibility({visibilityProperty: true}))
            texts.push(walker.currentNode.textContent);
    }
    return texts.join(' ');
}"""


@pytest.mark.parametrize("model", ["mlp", "transformer"])
def test_the_summary_is_short(open_dashboard, model):
    """Head, picture, and improvements once all are known."""
    dashboard = open_dashboard(f"?model={model}", size=WIDE)
    expect(dashboard.page.locator(".st-key-whole_model .move").first).to_be_visible()
    expect(dashboard.page.get_by_text("Effects of changes")).to_have_count(0)
    expect(dashboard.page.locator("[class*=st-key-row-improvement]").first).to_be_visible()
    words = dashboard.page.evaluate(_TEXT).split()
    assert {"Memory", "Traffic,", "Improvements"} <= {*words}
    assert len(words) <= 350
