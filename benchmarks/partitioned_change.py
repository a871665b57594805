"""From a change of the rules to the exact collectives, compared with a field of a bare page."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from playwright.sync_api import Page

from benchmarks.browser import settle
from benchmarks.pairing import Result, ratio_result
from benchmarks.rule_change import seconds_of_changes

PAIRS = 15
LIMIT = 4.0
# Milliseconds until the programs of another batch size are traced and partitioned, by model.
TRACED = {"logical_mlp": 1500, "transformer": 8000, "moe": 8000}
TRAFFIC = ".st-key-collective_bars .barlayer"
# The tab has other charts for some rules.
BARS = f"""() => [...document.querySelectorAll("{TRAFFIC}")]
  .filter(bars => !bars.closest("[data-retained]")).map(bars => bars.innerHTML)"""


def measure(pairs: int = PAIRS, models: Sequence[str] = tuple(TRACED)) -> list[Result]:
    """Change a rule with the tab Communication open, and the field of the bare page, in turn, for each model.

    Before each change of the rule, another batch size makes its layouts new to the server.
    """
    first, *others = models
    return [_measure(first, pairs), *(_measure(model, -(-pairs // 3)) for model in others)]


def _measure(model: str, pairs: int) -> Result:
    def prepare(page: Page) -> Callable[[], None]:
        page.get_by_role("tab", name="Communication").click()
        page.locator(TRAFFIC).first.wait_for(state="attached")
        page.evaluate(f"window.benchmark.drawn = {BARS}")
        batches = itertools.count(16, 8)
        return lambda: _new_batch(page, next(batches), TRACED[model])

    return ratio_result(
        LIMIT,
        name=f"partitioned_change, {model}",
        ours="from a change of the rules to the bytes by mesh axes after XLA's partitioner",
        baseline="from a change of the field of a bare page to its redrawn chart",
        pairs=seconds_of_changes(pairs, prepare, f"model={model}"),
    )


def _new_batch(page: Page, size: int, milliseconds: int) -> None:
    page.bring_to_front()
    page.get_by_label("Batch", exact=True).fill(str(size))
    page.keyboard.press("Enter")
    settle(page)
    page.locator(TRAFFIC).first.wait_for(state="attached")
    page.wait_for_timeout(milliseconds)
    settle(page)
