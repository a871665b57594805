"""Every page, dialog and menu in both themes has no severe barrier, and figures have a text alternative.

`test_first_page` checks the panels of the Layout page, which it opens in both themes.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser import axe
from tests.browser.dashboard import MENUS, Dashboard

pytestmark = pytest.mark.nightly

SMALL = "layers.2 depth.64"
FSDP = f"{SMALL} mesh.8 axes.fsdp rules.batch.fsdp~embed.fsdp"
BOARD = f"board?pin={quote(f'one~~{SMALL}')}&pin={quote(f'FSDP~~{FSDP}')}"
# Buttons that open a dialog or a menu, by page.
OPENING = {
    "": ("Compare", "Save", "Share", "Code", "Pictures"),
    BOARD: ("Share", "FSDP"),
}
OPENED = "[role=dialog], [data-testid=stPopoverBody]"


def barriers(dashboard: Dashboard, name: str, within: str | None = None) -> list[str]:
    """Return the barriers of the open page in both themes."""
    found = []
    for theme in themes(dashboard):
        dashboard.page.emulate_media(color_scheme=theme)
        dashboard.wait_for_stillness()
        dashboard.screenshot(f"{name.replace(' ', '_').lower()}_{theme}")
        rule = None if theme == "light" else axe.CONTRAST
        found += [f"{name}, {theme}: {barrier}" for barrier in axe.barriers(dashboard.page, within, rule)]
    return found


def themes(dashboard: Dashboard) -> tuple[str, str]:
    """Return both themes, the current one first: a change of the theme draws the whole page again."""
    dark = dashboard.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    return ("dark", "light") if dark else ("light", "dark")


def tabs(dashboard: Dashboard) -> list[str]:
    """Return the names of the outermost tabs of the page."""
    lists = dashboard.main().get_by_role("tablist")
    return lists.first.get_by_role("tab").all_inner_texts() if lists.count() else []


def pages(dashboard: Dashboard) -> list[str]:
    """Return the names of all pages in the navigation."""
    names = dashboard.page.get_by_test_id("stTopNavLink").all_inner_texts()
    items = [name for menu in MENUS.values() for name in menu]
    return [name.split("\n")[-1].strip() for name in (*names, *items)]


def test_no_page_has_a_severe_barrier(open_dashboard) -> None:
    dashboard = open_dashboard("?layers=2&depth=64")
    found, seen = [], pages(dashboard)
    assert {"Layout", "Compare", "Library", "Accuracy of predictions", "Restore and transfer"} <= set(seen)
    for name in seen:
        if name not in ("Layout", "Compare"):
            dashboard.go_to(name)
            dashboard.settle()
            found += barriers(dashboard, name)
    assert not found, "\n".join(found)


def test_no_tab_of_the_board_has_a_severe_barrier(open_dashboard) -> None:
    dashboard = open_dashboard("?layers=2&depth=64")
    dashboard.page.goto(f"{dashboard.url}/{BOARD}")
    dashboard.wait_for_figure("glance")
    names = tabs(dashboard)
    assert names == ["Side by side", "Arrays", "Times"]
    result = barriers(dashboard, "Board")
    for name in names:
        dashboard.open_tab(name)
        result += barriers(dashboard, name, axe.OPEN_PANEL)
    assert not result, "\n".join(result)


@pytest.mark.parametrize("page", OPENING)
def test_no_dialog_or_menu_has_a_severe_barrier(open_dashboard, page: str) -> None:
    dashboard = open_dashboard("?layers=2&depth=64")
    if page:
        dashboard.page.goto(f"{dashboard.url}/{page}")
        dashboard.wait_for_figure("glance")
    found = []
    for name in OPENING[page]:
        button = dashboard.page.locator(f"button[data-testid]:has(p:text-is('{name}'))")
        button.locator("visible=true").click()
        expect(dashboard.page.locator(OPENED)).to_be_visible()
        for theme in themes(dashboard):
            dashboard.page.emulate_media(color_scheme=theme)
            dashboard.settle()
            rule = None if theme == "light" else axe.CONTRAST
            found += [
                f"{name}, {theme}: {violation}" for violation in axe.violations(dashboard.page, OPENED, rule)
            ]
        dashboard.page.keyboard.press("Escape")
        expect(dashboard.page.locator(OPENED)).to_have_count(0)
    assert not found, "\n".join(found)
