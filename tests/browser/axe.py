"""Barriers on a page, found by axe-core (https://github.com/dequelabs/axe-core)."""

from __future__ import annotations

import re
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

SEVERE = ("serious", "critical")

# Elements of Streamlit that the project cannot change: the rule, a regular expression of their HTML, and why.
EXCEPTIONS: tuple[tuple[str, str, str], ...] = ()


def violations(page: Page) -> list[str]:
    """Return each severe violation of the page with its element."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:300]} {node.get('failureSummary', '')}"
        for one in found
        if one["impact"] in SEVERE
        for node in one["nodes"]
        if not _excepted(one["id"], node)
    ]


def _excepted(rule: str, node: dict[str, Any]) -> bool:
    return any(rule == known and re.search(html, node["html"]) for known, html, _ in EXCEPTIONS)
