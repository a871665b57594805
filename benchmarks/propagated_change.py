"""From a change of the rules to the propagated collectives, compared with a field of a bare page."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from playwright.sync_api import Page

from benchmarks.browser import settle
from benchmarks.pairing import Result, ratio_result
from benchmarks.rule_change import seconds_of_changes

PAIRS = 15
LIMIT = 4.0
TRAFFIC = ".st-key-traffic_map .heatmaplayer"


def measure(pairs: int = PAIRS) -> list[Result]:
    """Change the rule of `hidden` with the tab Collectives open, and the field of the bare page, in turn.

    Before each change of the rule, another batch size makes its layouts new to the server.
    """

    def prepare(page: Page) -> Callable[[], None]:
        page.get_by_role("tab", name="Collectives").click()
        page.locator(TRAFFIC).first.wait_for(state="attached")
        batches = itertools.count(16, 8)
        return lambda: _new_batch(page, next(batches))

    return [
        ratio_result(
            LIMIT,
            name="propagated_change",
            ours="from a change of the rules to the propagated traffic between devices",
            baseline="from a change of the field of a bare page to its redrawn chart",
            pairs=seconds_of_changes(pairs, prepare),
        )
    ]


def _new_batch(page: Page, size: int) -> None:
    page.bring_to_front()
    page.get_by_label("Batch", exact=True).fill(str(size))
    page.keyboard.press("Enter")
    settle(page)
    page.locator(TRAFFIC).first.wait_for(state="attached")
    page.wait_for_timeout(1500)  # until the programs of this size are propagated
    settle(page)
