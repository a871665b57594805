"""The first page in wide and narrow windows and both themes."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from benchmarks.processes import until
from tests.browser import axe
from tests.browser.dashboard import NARROW, WIDE, cells

MOST_BUTTONS = 25  # on the first screen of the Layout page
SMALLEST_PX = 8  # height of the smallest readable letters
TABS = ("Summary", "Arrays", "Communication", "Time", "Memory", "Improve")
VIEWS = ("Table", "Tree", "By device", "Rules", "Train state")
PLACES = [(tab, view) for tab in TABS for view in (VIEWS if tab == "Arrays" else [None])]


def test_the_default_layout_is_drawn(dashboard):
    expect(dashboard.page).to_have_title("Sharding Inspector")
    expect(dashboard.main().get_by_role("heading", level=3)).to_have_text(
        "MLP, logical axes on data 2 × model 4, 8 emulated devices"
    )
    dashboard.expect_badge("Planned")
    dashboard.expect_devices_of_blocks(["0, 4", "1, 5", "2, 6", "3, 7"])
    expect(dashboard.alerts()).to_have_count(0)
    expect(dashboard.page.get_by_test_id("stException")).to_have_count(0)
    text = dashboard.page.locator("body").inner_text()
    for word in ("NaN", "undefined", "Traceback", "None×", "Infinity"):
        assert word not in text
    dashboard.expect_query("")


def test_equal_colors_are_equal_blocks(dashboard):
    blocks = cells(dashboard.wait_for_figure("block_map"))
    devices = cells(dashboard.wait_for_figure("mesh_map"))
    assert [text.split("<br>")[0] for text, _, _ in devices] == [f"device {n}" for n in range(8)]
    assert len({colour for _, _, colour in blocks}) == 4
    colour_of_block = {number: colour for _, number, colour in blocks}
    for place, (_, number, colour) in enumerate(devices):
        assert number == place % 4
        assert colour == colour_of_block[number]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("size", "theme"), [(WIDE, "light"), (NARROW, "dark")], ids=["1440-light", "800-dark"]
)
def test_every_panel_can_be_read(open_dashboard, theme, size):
    dashboard = open_dashboard(size=size, color_scheme=theme)
    dashboard.page.get_by_text("Training and measurement").click()
    expect(dashboard.field("Measured steps")).to_be_visible()
    assert dashboard.main().get_by_role("tab").all_inner_texts() == list(TABS)
    rule = None if theme == "light" else axe.CONTRAST
    cut, unnamed, barriers = {}, {}, {"whole page": axe.barriers(dashboard.page, rule=rule)}
    for panel, view in PLACES:
        dashboard.open_tab(panel, view)
        opened = dashboard.page.get_by_role("tabpanel", name=panel)
        expect(opened).to_be_visible()
        until(lambda opened=opened: len(opened.inner_text().strip()) > 20, f"the text of {panel}")
        expect(dashboard.page.get_by_test_id("stException")).to_have_count(0)
        panel = view or panel
        name = panel.replace(" ", "_").lower()
        dashboard.screenshot(f"{name}_{size['width']}_{theme}")
        dashboard.wait_for_stillness()
        cut[panel] = cut_off(dashboard)
        if size == WIDE:  # a narrow window has the same controls
            unnamed[panel] = controls_without_names(dashboard)
        barriers[panel] = axe.barriers(dashboard.page, axe.OPEN_PANEL, rule)
    assert not any(cut.values()), "\n".join(f"{name}: {one}" for name in cut for one in cut[name])
    assert not any(unnamed.values()), unnamed
    assert not any(barriers.values()), "\n".join(
        f"{name}: {one}" for name in barriers for one in barriers[name]
    )


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("query", ["", "?model=transformer", "?model=transformer&target=tpu:v5e:2x4"])
def test_the_first_screen_has_the_answers_and_few_buttons(open_dashboard, query):
    dashboard = open_dashboard(query)
    dashboard.wait_for_stillness()
    visible = dashboard.page.evaluate(
        """() => [...document.querySelectorAll('button')].filter(one => {
            const box = one.getBoundingClientRect();
            return box.width > 0 && box.top < innerHeight && box.bottom > 0
                && one.checkVisibility({opacityProperty: true, visibilityProperty: true});
        }).map(one => one.innerText)"""
    )
    assert len(visible) <= MOST_BUTTONS, visible
    for shown in (
        dashboard.keyed("whole_model"),
        dashboard.field("Mesh axes of rule 2"),
        dashboard.main().get_by_test_id("stMetric").first,
    ):
        box = shown.bounding_box()
        assert box is not None and box["y"] < WIDE["height"]


def test_figures_follow_the_theme(open_dashboard):
    grounds, letters = set(), set()
    dashboard = open_dashboard()
    dashboard.open_tab("Arrays")
    page = dashboard.page
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        dashboard.wait_for_stillness()
        grounds.add(css(page.get_by_test_id("stApp"), "background-color"))
        letters.add(css(page.locator(".st-key-block_map .gtitle"), "fill"))
    assert len(grounds) == 2
    assert len(letters) == 2


def test_the_keyboard_reaches_every_field(dashboard):
    for label in ("Mesh", "Axis names", "Logical axis of rule 1", "Mesh axes of rule 2", "Batch"):
        focus_with_tab(dashboard, label)
    dashboard.page.keyboard.press("Control+a")
    dashboard.page.keyboard.type("16")
    dashboard.page.keyboard.press("Enter")
    dashboard.page.wait_for_url("**/?batch=16")


CONTROLS = {
    *("button", "checkbox", "combobox", "link", "listbox", "radio", "searchbox", "slider"),
    *("spinbutton", "switch", "tab", "textbox"),
}


def controls_without_names(dashboard):
    """Return the controls that a screen reader cannot name, as HTML."""
    session = dashboard.page.context.new_cdp_session(dashboard.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in nodes if not node["ignored"] and role(node) in CONTROLS]
    assert len(controls) > 30
    unnamed = [node for node in controls if not node.get("name", {}).get("value", "").strip()]
    describes = [describe(session, node) for node in unnamed]
    session.detach()
    return describes


def role(node):
    return node.get("role", {}).get("value")


def describe(session, node):
    """Return the element of a node of the accessibility tree as HTML."""
    result = session.send("DOM.getOuterHTML", {"backendNodeId": node["backendDOMNodeId"]})
    return role(node), result["outerHTML"][:300]


def focus_with_tab(dashboard, label):
    # The page has 62 stops, and the first press can come before the sidebar is drawn.
    for _ in range(130):
        dashboard.page.keyboard.press("Tab")
        if dashboard.page.evaluate("document.activeElement.getAttribute('aria-label')") == label:
            return
    raise AssertionError(f"Tab does not reach {label}")


def css(locator, name):
    return locator.first.evaluate("(one, name) => getComputedStyle(one)[name]", name)


def cut_off(dashboard):
    """Return everything that scrolls sideways, is cut off, or is too small to read."""
    page = dashboard.page
    result = page.evaluate(
        """() => [document.documentElement, ...['stMain', 'stSidebarContent'].map(
            name => document.querySelector(`[data-testid=${name}]`))
        ].filter(one => one && one.scrollWidth > one.clientWidth + 1)
        .map(one => `${one.dataset.testid} scrolls: ${one.scrollWidth} in ${one.clientWidth}`)"""
    )
    result += page.evaluate(
        """() => [...document.querySelectorAll('[data-testid=stApp] *')].filter(one => {
            const style = getComputedStyle(one);
            // A name for screen readers alone is one pixel wide.
            return one.offsetParent && one.clientWidth > 1 && one.textContent.trim()
                && style.overflowX === 'hidden' && style.textOverflow === 'ellipsis'
                && one.scrollWidth > one.clientWidth + 1;
        }).map(one => `${one.textContent}: ${one.scrollWidth} in ${one.clientWidth}`)"""
    )
    for key in dashboard.figure_keys():
        result += [
            f"{key}: {text}"
            for text in dashboard.texts_drawn(key)
            if text["out"] > 1 or text["px"] < SMALLEST_PX
        ]
        result += [f"{key}: {text}" for text in dashboard.texts_beyond_their_cells(key)]
    return result
