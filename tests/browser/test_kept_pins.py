"""Pins that the browser keeps: for a reload, and for another tab of the same browser."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.dashboard import WIDE, Dashboard
from tests.browser.server import Server

SMALL = "?depth=64&batch=8&layers=2"


def compare_link(page: Page, title: str):
    return page.get_by_role("link", name=title, exact=True)


def entries(page: Page) -> dict[str, str]:
    return page.evaluate(
        "() => Object.fromEntries(Object.entries(localStorage).filter(([key]) => key.startsWith('pins')))"
    )


@pytest.mark.nightly
def test_a_reload_and_another_tab_have_the_pins_until_they_are_removed(
    open_context: Callable[..., BrowserContext], server: Server
) -> None:
    context = open_context(viewport=WIDE, reduced_motion="reduce")
    first = Dashboard(context.new_page(), server.url).open(SMALL)
    expect(compare_link(first.page, "Compare")).to_be_visible()
    first.pin("first")
    first.choose_preset("FSDP")
    first.pin("second")
    expect(compare_link(first.page, "Compare (2)")).to_be_visible()

    first.open()  # another layout: the pins do not depend on the URL
    expect(compare_link(first.page, "Compare (2)")).to_be_visible()
    second = Dashboard(context.new_page(), server.url).open()
    expect(compare_link(second.page, "Compare (2)")).to_be_visible()
    second.go_to("Compare")
    for name in ("first", "second"):
        expect(second.keyed("board_table")).to_contain_text(name)

    # A link wins, and the link of this board has the layouts that were pinned.
    expect(second.page).to_have_url(re.compile(r"depth\.64.*depth\.64"))
    one_pin = second.page.url.split("&pin=")[0].replace("first", "linked")
    third = context.new_page()
    third.goto(one_pin)
    expect(compare_link(third, "Compare (1)")).to_be_visible()
    third.close()

    for left in (1, 0):
        second.keyed("pin-0").get_by_role("button").click()
        second.click("pin_remove:0")
        second.page.keyboard.press("Escape")
        expect(second.page.get_by_test_id("stPopoverBody")).to_have_count(0)
        expect(compare_link(second.page, f"Compare ({left})" if left else "Compare")).to_be_visible()
    assert entries(second.page) == {}
    second.open()
    second.settle()
    expect(compare_link(second.page, "Compare")).to_be_visible()


def test_what_another_program_has_stored_is_dropped(
    open_context: Callable[..., BrowserContext], server: Server
) -> None:
    context = open_context(viewport=WIDE, reduced_motion="reduce")
    context.add_init_script("localStorage.setItem('pins', 'pin=%00<img src=x>&pin=A~~mesh.0&board=x')")
    dashboard = Dashboard(context.new_page(), server.url).open(SMALL)
    dashboard.page.wait_for_timeout(500)
    dashboard.settle()
    expect(compare_link(dashboard.page, "Compare")).to_be_visible()
    expect(dashboard.alerts()).to_have_count(0)
