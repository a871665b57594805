"""The system's Chromium, driven by Playwright."""

from __future__ import annotations

from contextlib import AbstractContextManager

from playwright.sync_api import Browser

from benchmarks import browser

ARGUMENTS = (
    "--no-sandbox",  # tests run as root in containers too
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)


def chromium() -> AbstractContextManager[Browser]:
    """A browser, closed in the end."""
    return browser.chromium(ARGUMENTS)
