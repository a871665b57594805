"""From the click on "Build and run" in a browser to the page with the result.

It is compared with the plain script of `warm_run`. The page needs more time to poll and to draw.
"""

from __future__ import annotations

from benchmarks.browser import DASHBOARD, Server, chromium, click_run, open_page, settle
from benchmarks.pairing import Result, interleave, ratio_result
from benchmarks.plain_process import PlainProcess
from benchmarks.warm_run import LIMIT, SAME_STEPS, script_sizes
from inspector import layout as layouts

PAIRS = 7


def measure(pairs: int = PAIRS) -> list[Result]:
    """Run the default layout from a page and as a plain script, in turn."""
    layout = layouts.parse({}).unwrap()
    with chromium() as browser, PlainProcess(layout.devices) as plain:
        server = Server(DASHBOARD)
        try:
            page, _ = open_page(browser, server.url, 1)
            settle(page)

            def ours() -> float:
                seconds = click_run(page)
                settle(page)
                return seconds

            taken = interleave(ours, lambda: plain.ask("run", **script_sizes(layout))["seconds"], pairs)
        finally:
            server.close()
    return [
        ratio_result(
            LIMIT,
            name="page_run",
            ours="from a click in the browser to the page with the result",
            baseline=SAME_STEPS,
            pairs=taken,
        )
    ]
