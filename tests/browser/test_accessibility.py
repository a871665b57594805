"""Every page in both themes has no severe barrier, and every figure has a text alternative."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.browser import axe
from tests.browser.dashboard import Dashboard

SMALL = "layers.2 depth.64"
FSDP = f"{SMALL} mesh.8 axes.fsdp rules.batch.fsdp~embed.fsdp"
BOARD = f"board?pin={quote(f'one~~{SMALL}')}&pin={quote(f'FSDP~~{FSDP}')}"

# The role and the name of each visible figure, as a screen reader has them.
_ALTERNATIVES = """() => [...document.querySelectorAll('.js-plotly-plot')].filter(one => one.offsetParent)
    .map(one => { const image = one.closest('[role=figure][aria-label]');
        return [one.closest('[class*=st-key-]').className.match(/st-key-([\\w-]+)/)[1],
                image ? image.getAttribute('aria-label') : '']; })"""

# The texts of visible figures on the ground of the page, with a contrast (WCAG 2) below 4.5.
_FAINT = """() => {
    const light = color => { const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(one => one / 255)
        .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05; };
    const ground = light(getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor);
    return [...document.querySelectorAll('.js-plotly-plot :is(.gtitle, .annotation-text, .legendtext,'
        + ' .xtick text, .ytick text, .xtitle, .ytitle)')].filter(one => one.getBoundingClientRect().width)
        .filter(one => { const own = light(getComputedStyle(one).fill);
            return Math.max(own, ground) / Math.min(own, ground) < 4.5; })
        .map(one => one.textContent + ' ' + getComputedStyle(one).fill);
}"""


def barriers(dashboard: Dashboard, name: str) -> list[str]:
    """Return the severe violations of the open page in both themes, and figures without an alternative."""
    found = []
    for theme in ("light", "dark"):
        dashboard.page.emulate_media(color_scheme=theme)
        dashboard.wait_for_stillness()
        dashboard.settle()
        dashboard.screenshot(f"{name.replace(' ', '_').lower()}_{theme}")
        found += [f"{name}, {theme}: {one}" for one in axe.violations(dashboard.page)]
        faint = dashboard.page.evaluate(_FAINT)
        found += [f"{name}, {theme}: faint text in a figure: {one}" for one in faint]
    for key, said in dashboard.page.evaluate(_ALTERNATIVES):
        if len(said.split()) < 3:
            found.append(f"{name}: the figure {key} has the alternative {said!r}")
    return found


def tabs(dashboard: Dashboard) -> list[str]:
    """Return the names of the outermost tabs of the page."""
    lists = dashboard.main().get_by_role("tablist")
    return lists.first.get_by_role("tab").all_inner_texts() if lists.count() else []


def pages(dashboard: Dashboard) -> list[str]:
    """Return the names of all pages in the navigation."""
    names = dashboard.page.get_by_test_id("stTopNavLink").all_inner_texts()
    guides = dashboard.page.get_by_text("Guides", exact=True).locator("visible=true")
    guides.click()
    items = dashboard.page.get_by_role("menuitem").all_inner_texts()
    dashboard.page.keyboard.press("Escape")
    return [name.split("\n")[-1].strip() for name in (*names, *items)]


def test_no_page_has_a_severe_barrier(open_dashboard) -> None:
    dashboard = open_dashboard("?layers=2&depth=64")
    found, seen = [], pages(dashboard)
    assert {"Layout", "Board", "Library", "Accuracy", "Restore"} <= set(seen)
    for name in seen:
        if name not in ("Layout", "Board"):
            dashboard.go_to(name)
            dashboard.settle()
            found += barriers(dashboard, name)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("address", ["?layers=2&depth=64", BOARD], ids=["layout", "board"])
def test_no_tab_has_a_severe_barrier(open_dashboard, address: str) -> None:
    dashboard = open_dashboard("?layers=2&depth=64")
    if address == BOARD:
        dashboard.page.goto(f"{dashboard.url}/{BOARD}")
        dashboard.wait_for_figure("glance")
    found, names = [], tabs(dashboard)
    assert len(names) > 4
    for name in names:
        dashboard.open_tab(name)
        found += barriers(dashboard, name)
    assert not found, "\n".join(found)
