"""Barriers on a page: those of axe-core (https://github.com/dequelabs/axe-core), and those in figures."""

from __future__ import annotations

import re
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

SEVERE = ("serious", "critical")

# Elements of Streamlit that the project cannot change: the rule, a regular expression of their HTML, and why.
EXCEPTIONS: tuple[tuple[str, str, str], ...] = ()

# The open panel of the outermost tabs.
OPEN_PANEL = "[data-testid=stMain] [role=tabpanel]:not([hidden])"

# The only rule of axe-core that depends on the theme.
CONTRAST = "color-contrast"

# The key and the name of each visible figure, as a screen reader has them.
_ALTERNATIVES = """() => [...document.querySelectorAll('.js-plotly-plot')].filter(one => one.offsetParent)
    .map(one => { const image = one.closest('[role=figure][aria-label]');
        return [one.closest('[class*=st-key-]').className.match(/st-key-([\\w-]+)/)[1],
                image ? image.getAttribute('aria-label') : '']; })"""

# The texts of visible figures with a contrast (WCAG 2) below 4.5 to their own ground, or to that of the page.
_FAINT = """() => {
    const light = color => { const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(one => one / 255)
        .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05; };
    const ground = light(getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor);
    return [...document.querySelectorAll('.js-plotly-plot :is(.gtitle, .annotation-text, .legendtext,'
        + ' .xtick text, .ytick text, .xtitle, .ytitle)')].filter(one => one.getBoundingClientRect().width)
        .filter(one => { const own = light(getComputedStyle(one).fill);
            const box = getComputedStyle(one.closest('.annotation')?.querySelector('rect.bg') ?? one);
            const filled = +box.fillOpacity && box.fill !== getComputedStyle(one).fill;
            const under = filled ? light(box.fill) : ground;
            return Math.max(own, under) / Math.min(own, under) < 4.5; })
        .map(one => one.textContent + ' ' + getComputedStyle(one).fill);
}"""


def violations(page: Page, within: str | None = None, rule: str | None = None) -> list[str]:
    """Return each severe violation with its element, on the page or within the element of a selector.

    With `rule`, check only that rule of axe-core.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rule:
        options["runOnly"] = [rule]
    result = page.evaluate(
        "([within, options]) => axe.run(within ?? document, options).then(one => one.violations)",
        [within, options],
    )
    return [
        f"{one['id']}: {node['html'][:300]} {node.get('failureSummary', '')}"
        for one in result
        if one["impact"] in SEVERE
        for node in one["nodes"]
        if not _excepted(one["id"], node)
    ]


def barriers(page: Page, within: str | None = None, rule: str | None = None) -> list[str]:
    """Return severe violations as `violations` does, faint texts in figures, and unnamed figures."""
    result = violations(page, within, rule)
    result += [f"faint text in a figure: {one}" for one in page.evaluate(_FAINT)]
    for key, said in page.evaluate(_ALTERNATIVES):
        if len(said.split()) < 3:
            result.append(f"the figure {key} has the alternative {said!r}")
    return result


def _excepted(rule: str, node: dict[str, Any]) -> bool:
    return any(rule == known and re.search(html, node["html"]) for known, html, _ in EXCEPTIONS)
