"""The HTML report opened offline from disk: figures are drawn, and nothing is fetched."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from inspector.machines import hardware
from inspector.media import picture_file, report
from inspector.media.streamlit.session import screenshot_mode
from tests.browser import axe
from tests.browser.dashboard import PATIENCE_MS, WIDE, Dashboard, artifact
from tests.compare import glances
from tests.media import hostile

pytestmark = pytest.mark.nightly

NAME = "<img src=x onerror=window.hacked=1>"
NOTE = "</script><script>window.hacked=1</script>\n$x^2$ <svg onload=window.hacked=1>"

# Installed before any script of the page runs.
_WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', event => window.violations.push(event.blockedURI));
"""

# For each figure: whether Plotly has the data of the file, and whether it is drawn in its place.
_DRAWN = """() => [...document.querySelectorAll('figure[data-figure]')].map(figure => {
    const given = JSON.parse(document.getElementById('figure-' + figure.dataset.figure).textContent);
    const plot = figure.querySelector('.plot');
    const heat = JSON.stringify(given.data.map(one => [one.type, one.text, one.customdata, one.ids]));
    const drawn = JSON.stringify(plot.data.map(one => [one.type, one.text, one.customdata, one.ids]));
    const room = plot.getBoundingClientRect(), svg = plot.querySelector('.main-svg').getBoundingClientRect();
    return [heat === drawn, Math.abs(room.height - svg.height) < 1 && Math.abs(room.width - svg.width) < 1];
})"""

# Texts of each drawing and figure that overlap another one or are cut off, as the browser draws them.
_COLLISIONS = """() => [...document.querySelectorAll('svg.whole-model, svg.main-svg')].flatMap(svg => {
    const room = svg.getBoundingClientRect(), found = [];
    const texts = [...svg.querySelectorAll('text')].flatMap(text => {
        const lines = [...text.querySelectorAll('tspan.line')];
        return (lines.length ? lines : [text]).map(line => [line.textContent, line.getBoundingClientRect()]);
    }).filter(([text, box]) => text.trim() && box.width);
    texts.forEach(([text, box], number) => {
        if (box.right > room.right + 1 || box.left < room.left - 1) found.push(`cut: ${text}`);
        for (const [other, of] of texts.slice(number + 1))
            if (box.left < of.right && of.left < box.right && Math.min(box.bottom, of.bottom)
                - Math.max(box.top, of.top) > 4) found.push(`${text} | ${other}`);
    });
    return found;
})"""


def test_texts_do_not_overlap_in_the_fonts_of_this_machine(
    open_context: Callable[..., BrowserContext], tmp_path: Path
) -> None:
    chip = hardware.chip("v5e")
    traffic = glances.sent(("data",), 2**20), glances.sent(("model",), 2**24)
    named = [
        ("FSDP, the baseline of this week", glances.planned(*traffic, flops=1e10)),
        ("Data + tensor 32x1", glances.planned(*traffic, *traffic, flops=2e10, data=8, model=4)),
    ]
    page = open_context(offline=True, viewport=WIDE).new_page()
    for count in (1, 2):
        path = tmp_path / f"{count}.html"
        report.write(named[:count], path, chip)
        page.goto(path.as_uri())
        page.wait_for_selector("figure[data-state=drawn]")
        for width in (1440, 800):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.locator("svg text").count() > 10
            assert page.evaluate(_COLLISIONS) == []
            scrolled = "found => found.filter(one => one.scrollWidth > one.clientWidth + 1).length"
            assert page.locator("figure.drawing").evaluate_all(scrolled) == 0
            assert page.locator("figure.drawing svg:visible").count() == (count == 1)
    svg = picture_file.picture(report.picture(named, chip, screenshot_mode.WIDTH_PX), "svg").decode()
    page.set_content(svg[svg.index("<svg") :])
    assert page.locator("svg text").count() > 10
    assert page.evaluate(_COLLISIONS) == []


def test_a_report_works_offline(open_context: Callable[..., BrowserContext], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    named = [
        (NAME, hostile.snapshot(NAME)),
        ("after", hostile.snapshot(NAME, (None, (f"model{NAME}",)))),
    ]
    report.write(named, path, hardware.chip("v5p"), {NAME: NOTE})

    context = open_context(offline=True, viewport=WIDE, color_scheme="light")
    context.add_init_script(_WATCH)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())

    # The page is short, and only its one visible figure is drawn. A part opens by key or by its anchor.
    page.wait_for_selector("figure[data-state=drawn]")
    assert page.evaluate("document.documentElement.scrollHeight") < 2.5 * WIDE["height"]
    assert page.locator("figure[data-state]").count() == 1
    page.screenshot(path=artifact("report_closed"), full_page=True)
    # What is closed is not printed, but for what a reviewer needs.
    assert len(re.findall(rb"/Type\s*/Page[^s]", page.pdf())) <= 3
    assert page.locator("details[open]").count() == 0
    page.locator("#difference > summary").press("Enter")
    page.evaluate("location.hash = 'snapshot-2-time'")
    page.wait_for_function("document.getElementById('snapshot-2-time').open")
    opened = page.locator("details[open]").evaluate_all("parts => parts.map(part => part.id)")
    assert opened == ["difference", "snapshot-2", "snapshot-2-time"]

    page.get_by_role("button", name="Open all parts").click()
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": WIDE["width"], "height": height})
    page.wait_for_function(
        "() => [...document.querySelectorAll('figure[data-figure]')]"
        ".every(figure => figure.dataset.state === 'drawn')"
    )
    drawn = page.evaluate(_DRAWN)
    assert len(drawn) > 10 and all(same and placed for same, placed in drawn), drawn
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{NAME} against after")
    assert NOTE.split("\n")[0] in page.locator(".note").inner_text()
    texts = page.evaluate("[...document.querySelectorAll('svg text')].map(one => one.textContent).join()")
    assert f"params/{NAME}/W1" in texts and "<br>" not in texts
    page.screenshot(path=artifact("report"))
    assert axe.violations(page) == []
    said = page.locator("figure[data-figure] [role=img]").evaluate_all(
        "found => found.map(one => one.getAttribute('aria-label'))"
    )
    assert len(said) == len(drawn) and all(len(one.split()) > 2 for one in said), said

    with page.expect_download() as download:
        page.locator("button[data-save=png]").first.click()
    content = Path(download.value.path()).read_bytes()
    width, high = struct.unpack(">II", content[16:24])
    size = page.evaluate(
        "(() => { const one = JSON.parse(document.getElementById('figure-0').textContent);"
        " return [one.layout.width, one.stamp.height]; })()"
    )
    assert [width, high] == [2 * size[0], 2 * size[1]]

    page.emulate_media(color_scheme="dark")
    # Figures are drawn again for another theme, which takes a moment.
    page.wait_for_function(
        "() => getComputedStyle(document.body).backgroundColor === 'rgb(13, 17, 23)'"
        " && getComputedStyle(document.querySelector('.gtitle')).fill === 'rgb(230, 237, 243)'"
    )
    page.screenshot(path=artifact("report_dark"))
    assert axe.violations(page) == []

    assert page.evaluate("[typeof window.hacked, window.violations]") == ["undefined", []]
    assert [url for url in requests if not url.startswith(("file:", "blob:", "data:"))] == []
    assert [url for url in requests if url.startswith("file:")] == [path.as_uri()]
    assert errors == []


def test_escape_closes_the_menu_after_a_download(open_dashboard: Callable[..., Dashboard]) -> None:
    dashboard = open_dashboard("?depth=64")
    page = dashboard.page
    dashboard.open_share()
    menu = page.get_by_test_id("stPopoverBody")
    with page.expect_download() as download:
        menu.get_by_role("button", name="Markdown").click()
    assert download.value.suggested_filename.endswith(".md")
    dashboard.screenshot("share_menu")
    dashboard.settle()
    page.keyboard.press("Escape")
    expect(menu).to_have_count(0)
