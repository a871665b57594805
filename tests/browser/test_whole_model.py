"""The whole model on a page: what a click opens, what the pointer lights, and what an edit shows."""

from __future__ import annotations

from playwright.sync_api import expect

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
