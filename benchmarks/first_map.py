"""From opening the page to its first figure, compared with a bare Streamlit page with two charts.

Cold: each page has a new server. The dashboard imports JAX first; this time is measured separately and
subtracted. Warm: the servers have served pages before. The cache of the browser is always empty.
"""

from __future__ import annotations

import time
from pathlib import Path

from playwright.sync_api import Browser

from benchmarks.browser import BARE_PAGE, DASHBOARD, Server, chromium, open_page, settle
from benchmarks.pairing import Result, Spread, interleave, ratio_result, seconds_text
from inspector import layout as layouts
from inspector.jobs.inspection import Inspection

PAIRS = 5
LIMIT = 1.5
CHARTS = 2  # of the bare page, as in a shard map: blocks and mesh


def measure(pairs: int = PAIRS) -> list[Result]:
    """Open both pages in turn, first cold, then warm."""
    with chromium() as browser:
        return [_cold(browser, pairs), _warm(browser, pairs)]


def _cold(browser: Browser, pairs: int) -> Result:
    opened: list[float] = []
    imports: list[float] = []

    def ours() -> float:
        opened.append(_open_cold(browser, DASHBOARD))
        imports.append(import_seconds())
        if opened[-1] <= imports[-1]:
            raise RuntimeError("the import alone took longer than the page with it: the load has changed")
        return opened[-1] - imports[-1]

    taken = interleave(ours, lambda: _open_cold(browser, BARE_PAGE), pairs)
    return ratio_result(
        LIMIT,
        name="first_map, cold server",
        ours="from opening the page to the picture of the whole model, without the import of JAX",
        baseline="to the charts of a bare page",
        pairs=taken,
        notes=(
            f"including the import: {seconds_text(Spread.of(opened[-pairs:]))}",
            f"start of a worker, import of JAX and Flax, and first abstract job: "
            f"{seconds_text(Spread.of(imports[-pairs:]))}",
        ),
    )


def _warm(browser: Browser, pairs: int) -> Result:
    dashboard, bare = Server(DASHBOARD), Server(BARE_PAGE)
    try:
        taken = interleave(
            lambda: _open(browser, dashboard, DASHBOARD),
            lambda: _open(browser, bare, BARE_PAGE),
            pairs,
        )
    finally:
        dashboard.close()
        bare.close()
    return ratio_result(
        LIMIT,
        name="first_map, warm server",
        ours="from opening the page to the picture of the whole model",
        baseline="to the charts of a bare page",
        pairs=taken,
    )


def import_seconds() -> float:
    """Return the seconds in which a new worker imports JAX and Flax and plans the default layout."""
    service = Inspection()
    try:
        began = time.perf_counter()
        service.plan(layouts.parse({}).unwrap())
        return time.perf_counter() - began
    finally:
        service.close()


def _open_cold(browser: Browser, script: Path) -> float:
    server = Server(script)
    try:
        return _open(browser, server, script)
    finally:
        server.close()


def _open(browser: Browser, server: Server, script: Path) -> float:
    page, seconds = open_page(browser, server.url, 1 if script == DASHBOARD else CHARTS)
    settle(page)
    page.context.close()
    return seconds
