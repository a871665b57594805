"""The dashboard in a browser tab: user actions and drawn figures."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from benchmarks.processes import until
from tests.paths import ROOT

ARTIFACTS = ROOT / "artifacts"
PATIENCE = 90.0  # seconds until a missing element fails the test
PATIENCE_MS = int(1000 * PATIENCE)
POLL_MS = 50
REDRAW_MS = 60_000  # until a figure has the width of its place
CLICK_SECONDS = 20.0  # until a click without any effect is repeated
MENUS = {  # of the navigation
    "Saved": ("Library", "Open"),
    "Learn": (
        "Tutorials",
        "Arrays from pieces",
        "Several processes",
        "Two ways to write a model",
        "Restore and transfer",
        "Accuracy of predictions",
    ),
}
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 800, "height": 900}

expect.set_options(timeout=PATIENCE_MS)

# The figure with this key: its data and layout.
_FIGURE = """(key) => {
    const plot = document.querySelector(`.st-key-${key} .js-plotly-plot`);
    return plot && plot.querySelector('.main-svg') ? {data: plot.data, layout: plot.layout} : null;
}"""

# Every text in a figure: its height in pixels, and how far it is outside of the figure.
_TEXTS = """(key) => {
    const plot = document.querySelector(`.st-key-${key} .js-plotly-plot`);
    const room = plot.getBoundingClientRect();
    return [...plot.querySelectorAll('svg text')].filter(text => text.textContent.trim()).map(text => {
        const box = text.getBoundingClientRect();
        const scale = text.getScreenCTM().a;
        return {
            text: text.textContent,
            px: parseFloat(getComputedStyle(text).fontSize) * Math.abs(scale || 1),
            out: Math.max(room.left - box.left, box.right - room.right,
                          room.top - box.top, box.bottom - room.bottom),
        };
    });
}"""

# Whether each visible figure is drawn for the width of its place.
_FIGURES_FIT = """() => [...document.querySelectorAll('.js-plotly-plot')].filter(one => one.offsetParent)
    .every(one => one._fullLayout && Math.abs(one._fullLayout.width - one.clientWidth) <= 1)"""

# The texts of heatmap cells that are wider than their cell.
_WIDER_TEXTS = """(key) => {
    const plot = document.querySelector(`.st-key-${key} .js-plotly-plot`);
    const full = plot._fullLayout, found = [];
    for (const layer of plot.querySelectorAll('.heatmaplayer .hm')) {
        const trace = layer.__data__[0].trace;
        const axis = full[trace.xaxis.replace('x', 'xaxis')];
        // Cells of one width have a start and a step instead of their edges.
        const edges = trace.x ?? [trace.x0, trace.x0 + trace.dx];
        const widths = edges.slice(1).map((x, index) => Math.abs(axis.c2p(x) - axis.c2p(edges[index])));
        for (const text of layer.querySelectorAll('.heatmap-label text')) {
            const wide = text.getBoundingClientRect().width;
            if (wide > Math.max(...widths) + 1)
                found.push(`${text.textContent} is ${wide} px wide in ${Math.max(...widths)}`);
        }
    }
    return found;
}"""


class Dashboard:
    """One tab with the dashboard."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    def open(self, query: str = "") -> Dashboard:
        """Load the page, and wait for the picture of the whole model, or for the shard map."""
        self.page.goto(f"{self.url}/{query}")
        expect(self.keyed("whole_model").or_(self.keyed("block_map")).first).to_be_visible()
        self.settle()
        return self

    def settle(self) -> None:
        """Wait until the server has answered the last change."""
        self.page.wait_for_timeout(POLL_MS)  # for the browser to send it
        state = "document.querySelector('[data-testid=stApp]').dataset"
        self.page.wait_for_function(
            f"() => {state}.testScriptState === 'notRunning' && !document.querySelector('[data-stale=true]')",
            polling=POLL_MS,  # the default makes the browser draw every frame
        )

    def wait_for_stillness(self) -> None:
        """Wait until the page has its final shape: figures are redrawn when their width is known."""
        self.settle()
        # On a busy machine, a figure keeps its old width for seconds after the window changed.
        # If one never gets the width of its place, the assertion that follows reports what is cut off.
        with suppress(PlaywrightTimeout):
            self.page.wait_for_function(_FIGURES_FIT, timeout=REDRAW_MS, polling=POLL_MS)
        previous, same = None, 0
        while same < 8:
            shape = self.page.evaluate(
                "() => JSON.stringify([...document.querySelectorAll('.js-plotly-plot, canvas')]"
                ".map(one => one.getBoundingClientRect()))"
                " + document.querySelector('[data-testid=stMain]').scrollHeight"
                " + document.querySelector('[data-testid=stApp]').dataset.testScriptState"
            )
            same = same + 1 if shape == previous else 0
            previous = shape
            self.page.wait_for_timeout(POLL_MS)

    def in_windows(self) -> Iterator[str]:
        """Show the page in a wide light window, then in a narrow dark one. Yield the name of each."""
        for size, theme in ((WIDE, "light"), (NARROW, "dark")):
            self.page.set_viewport_size(size)
            self.page.emulate_media(color_scheme=theme)
            self.wait_for_stillness()
            yield f"{size['width']}_{theme}"

    # User actions.

    def field(self, label: str) -> Locator:
        """Return the field with this label. While a new widget replaces it, the new one comes first."""
        return self.page.get_by_label(label, exact=True).first

    def type(self, label: str, text: str) -> None:
        """Write into a field, and leave it with Enter."""
        field = self.field(label)
        field.fill(text)
        field.press("Enter")
        self.settle()

    def click(self, key: str) -> None:
        """Click the button with this key."""
        self.keyed(key).get_by_role("button").click()

    def open_share(self) -> None:
        """Open the menu with the files of the page, if it is closed."""
        body = self.page.get_by_test_id("stPopoverBody")
        if body.count() == 0:
            self.main().get_by_role("button", name="Share").click()
            expect(body).to_be_visible()

    def rule_menu(self, position: int, action: str) -> None:
        """Choose from the menu of a rule, counted from 0."""
        self.page.get_by_role("button", name=f"Actions of rule {position + 1}", exact=True).click()
        self.page.get_by_role("menuitem", name=action).click()
        self.settle()

    def open_tab(self, name: str, view: str | None = None) -> None:
        """Open a tab, and a view of the tab *Arrays*."""
        self.page.get_by_role("tab", name=re.compile(rf"^{re.escape(name)}\b")).click()
        self.settle()
        if view is not None:
            self.kept("arrays_view").get_by_role("radio", name=view, exact=True).click()
            self.settle()

    def choose_preset(self, name: str) -> None:
        """Choose a preset, which is in a list if there are many."""
        expect(self.kept("preset").first).to_be_visible()
        self.settle()
        if not self.kept("preset").get_by_role("radio").count():
            self.field("Preset").click()
            self.page.get_by_role("option", name=name, exact=True).click()
        else:
            self.kept("preset").get_by_text(name, exact=True).click()
        self.settle()

    def start_run(self) -> None:
        """Click the button that builds and runs or compiles, until that begins or is refused.

        A redraw of the page can replace the button under the click, and then the click does nothing.
        """
        self.settle()
        until(self.run_labels, "the button that runs", PATIENCE)
        label, alerts = self.run_labels(), self.alerts().count()
        until(lambda: self._began(label, alerts), "the beginning of the run", PATIENCE)

    def run_labels(self) -> list[str]:
        """Return the label of the button that builds and runs; nothing while a run is shown instead."""
        return self.keyed("run_button").get_by_role("button").all_inner_texts()

    def _began(self, label: list[str], alerts: int) -> bool:
        if self.run_labels() == label:
            self.click("run_button")
        with suppress(TimeoutError):
            until(lambda: self._left_idle(label, alerts), seconds=CLICK_SECONDS)
            return True
        return False

    def _left_idle(self, label: list[str], alerts: int) -> bool:
        """Return whether a run is shown, has just finished, or is refused."""
        self.page.wait_for_timeout(POLL_MS)
        if self.keyed("cancel_run").count() or self.alerts().count() > alerts:
            return True
        return self.run_labels() not in ([], label)

    def run(self) -> None:
        """Build and run, until the run is finished."""
        self.start_run()
        self.expect_badge("Run on emulated devices")
        self.settle()

    def pin(self, name: str | None = None) -> None:
        """Pin the Snapshot of the Layout page to compare it, with the suggested or another name."""
        self.open_pin_menu()
        if name is not None:
            # A redraw that suggests another name replaces the field, and with it the text.
            until(
                lambda: self._filled("Name in the comparison", name),
                "the name of the pin",
                PATIENCE,
            )
        self.page.get_by_role("button", name="Pin for the comparison").click()
        expect(self.page.get_by_test_id("stPopoverBody")).to_have_count(0)
        self.settle()

    def _filled(self, label: str, text: str) -> bool:
        """Fill a field, and return whether it keeps the text after a redraw."""
        field = self.page.get_by_label(label)
        field.fill(text)
        field.press("Tab")
        self.settle()
        return field.input_value() == text

    def open_pin_menu(self) -> None:
        self.page.locator("[class*=st-key-pin-popover]").get_by_role("button").click()

    def go_to(self, name: str) -> None:
        """Follow the navigation to another page, which may be in a menu."""
        menu = next((menu for menu, names in MENUS.items() if name in names), None)
        if menu is None:
            # The links to the jobs and to the comparison have a number.
            wanted = r"\d+ jobs?" if name == "Jobs" else rf"{name}( \(\d\))?"
            self.page.get_by_role("link", name=re.compile(f"^{wanted}$")).click()
            return
        self.page.get_by_test_id("stTopNavSection").filter(has_text=menu).click()
        self.page.get_by_role("menuitem", name=name, exact=True).click()

    def open_board(self) -> None:
        """Go to the page that compares layouts."""
        self.go_to("Compare")
        expect(self.main().get_by_role("heading", name="Compare")).to_be_visible()
        self.settle()

    # State of the page.

    def keyed(self, key: str) -> Locator:
        """Return the element with this key."""
        return self.page.locator(".st-key-" + re.sub(r"[^\w-]", "-", key))

    def kept(self, key: str) -> Locator:
        """Return the widget of a field that the session keeps. A number follows its key."""
        return self.page.locator(f'[class*="st-key-{re.sub(r"[^a-zA-Z0-9_-]", "-", key)}-"]')

    def main(self) -> Locator:
        return self.page.get_by_test_id("stMain")

    def sidebar(self) -> Locator:
        return self.page.get_by_test_id("stSidebar")

    def expect_badge(self, text: str) -> None:
        """Wait until the badge shows this source."""
        badge = self.main().locator(".stMarkdownBadge")
        # While the page is redrawn, the previous badge can still be visible.
        expect(badge).to_have_text([re.compile(re.escape(text))])

    def expect_alert(self, text: str) -> None:
        """Wait for an alert with this text. The previous alert may still be visible."""
        expect(self.alerts().filter(has_text=text).first).to_be_visible()

    def alerts(self) -> Locator:
        return self.page.get_by_test_id("stAlert")

    def expect_rules(self, expected: list[tuple[str, str]]) -> None:
        self._expect_value(self.rules, expected)

    def expect_query(self, expected: str) -> None:
        """Wait for this query in the URL, in any order. The URL changes after the figures."""
        shown = {("tab", "arrays")}  # shard maps are there

        def parameters(query: str) -> list[tuple[str, str]]:
            return sorted(set(parse_qsl(query)) - shown)

        self._expect_value(lambda: parameters(self.query()), parameters(expected))

    def expect_devices_of_blocks(self, expected: list[str]) -> None:
        self._expect_value(self.devices_of_blocks, expected)

    def _expect_value(self, read: Callable[[], object], expected: object) -> None:
        """Read a value of the page until it is as expected, and fail with the last one."""
        last: list[object] = []

        def found() -> bool:
            self.page.wait_for_timeout(POLL_MS)
            last[:] = [read()]
            return last == [expected]

        with suppress(TimeoutError):
            until(found, seconds=PATIENCE)
        assert last == [expected]

    def rules(self) -> list[tuple[str, str]]:
        """Return logical axis and mesh axes of each rule."""

        def texts(name: str) -> list[str]:
            fields = self.sidebar().locator(f"[class*=st-key-rule-][class*=-{name}] input")
            # At once: a field can vanish between two readings.
            return fields.evaluate_all("found => found.map(field => field.value)")

        return list(zip(texts("name"), texts("axes"), strict=False))  # between two readings too

    def query(self) -> str:
        """Return the query of the URL."""
        return urlsplit(self.page.url).query

    def figure(self, key: str) -> dict[str, Any] | None:
        """Return `data` and `layout` of a figure, or None. A redraw can remove it for a moment."""
        return self.page.evaluate(_FIGURE, key)

    def texts_drawn(self, key: str) -> list[dict[str, Any]]:
        """Return every text in a figure: `text`, its size `px`, and `out`, the pixels beyond the figure."""
        self.wait_for_figure(key)
        return self.page.evaluate(_TEXTS, key)

    def texts_beyond_their_cells(self, key: str) -> list[str]:
        """Return the texts of a heatmap that are wider than its widest cell."""
        self.wait_for_figure(key)
        return self.page.evaluate(_WIDER_TEXTS, key)

    def figure_keys(self) -> list[str]:
        """Return the keys of the visible figures."""
        return self.page.evaluate(
            "() => [...document.querySelectorAll('.js-plotly-plot')].filter(one => one.offsetParent)"
            ".map(one => one.closest('[class*=st-key-]').className.match(/st-key-([\\w-]+)/)[1])"
        )

    def wait_for_figure(
        self, key: str, condition: Callable[[dict[str, Any]], object] = bool
    ) -> dict[str, Any]:
        """Return the figure under this key when the condition holds. The tab of shard maps is opened."""
        if key in ("block_map", "mesh_map") and not self.keyed(key).count():
            summary = self.page.get_by_role("tab", name="Summary", selected=True)
            expect(summary.or_(self.keyed(key)).first).to_be_visible()
            if summary.count():
                self.open_tab("Arrays")

        def found() -> dict[str, Any] | None:
            figure = self.figure(key)
            if figure is None or not condition(figure):
                # After an error, no figure follows.
                broken = self.page.get_by_test_id("stException")
                assert not broken.count(), broken.first.inner_text()
                self.page.wait_for_timeout(POLL_MS)
                return None
            return figure

        figure = until(found, f"the figure {key}", PATIENCE)
        assert isinstance(figure, dict)
        return figure

    def devices_of_blocks(self) -> list[str]:
        """Return the devices in the cells of the block map, in order."""
        figure = self.wait_for_figure("block_map")
        return [
            re.sub(r"\s+", " ", text.replace("<br>", " ")).removeprefix("devices ").removeprefix("device ")
            for text, _, _ in cells(figure)
        ]

    def screenshot(self, name: str) -> None:
        """Save a picture of the whole page among the artifacts, if the variable ARTIFACTS is set."""
        if "ARTIFACTS" not in os.environ:
            self.settle()
            return
        before = self.page.viewport_size
        assert before is not None
        # The page scrolls inside the window, so the window is made as high as the page.
        high = self.page.evaluate(
            "Math.max(...['stMain', 'stSidebarContent'].map(name => "
            "document.querySelector(`[data-testid=${name}]`)?.scrollHeight ?? 0))"
        )
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size({"width": before["width"], "height": max(high, before["height"])})
        self.wait_for_stillness()
        self.page.screenshot(path=artifact(name))
        self.page.set_viewport_size(before)


def artifact(name: str) -> Path:
    """Return the path of a picture among the artifacts."""
    ARTIFACTS.mkdir(exist_ok=True)
    return ARTIFACTS / f"{name}.png"


def cells(figure: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return text, block number and color of each cell of a map, row by row."""
    found: dict[tuple[int, int], tuple[str, int, str]] = {}
    for trace in figure["data"]:
        if trace["type"] != "heatmap":
            continue
        for row, (texts, numbers) in enumerate(zip(trace["text"], trace["z"], strict=True)):
            for column, (text, number) in enumerate(zip(texts, numbers, strict=True)):
                if number is not None:
                    found[row, column] = (text, number, _colour(trace, number))
    return [found[place] for place in sorted(found)]


def _colour(trace: dict[str, Any], number: float) -> str:
    """Return the color of a number on Plotly's color scale, which has steps or slopes."""
    share = (number - trace["zmin"]) / (trace["zmax"] - trace["zmin"])
    scale = trace["colorscale"]
    below = max(index for index, (start, _) in enumerate(scale) if start <= share)
    return f"{scale[below][1]} {share:.6f}" if _slopes(scale, below) else scale[below][1]


def _slopes(scale: list[list[Any]], below: int) -> bool:
    return below + 1 < len(scale) and scale[below][1] != scale[below + 1][1]
