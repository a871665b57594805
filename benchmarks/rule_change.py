"""From a change of the rules to the redrawn picture of the model, compared with a field of a bare page."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from playwright.sync_api import Page

from benchmarks.browser import BARE_PAGE, DASHBOARD, Server, change_field, chromium, open_page, settle
from benchmarks.first_map import CHARTS
from benchmarks.pairing import Pair, Result, interleave, ratio_result

PAIRS = 31
LIMIT = 2.0
# Each value changes the blocks of the array that is shown: 4, 2 and 8 blocks.
MESH_AXES = ("data", "data + model", "model")
SEEDS = ("1", "2", "0")


def seconds_of_changes(
    pairs: int,
    prepare: Callable[[Page], Callable[[], None]] = lambda page: lambda: None,
    query: str = "",
) -> tuple[Pair, ...]:
    """Change the second rule, `hidden` or `mlp`, and the field of the bare page, in turn.

    Args:
      prepare: is called with the dashboard's page; returns what to do before each change of the rule.
      query: the layout in the dashboard's address; the default one if it is empty.
    """
    with chromium() as browser:
        dashboard, bare = Server(DASHBOARD), Server(BARE_PAGE)
        try:
            ours, _ = open_page(browser, f"{dashboard.url}/?{query}", 1)
            theirs, _ = open_page(browser, bare.url, CHARTS)
            before_change = prepare(ours)
            rules, seeds = itertools.cycle(MESH_AXES), itertools.cycle(SEEDS)

            def change_rule() -> float:
                before_change()
                seconds = change_field(ours, "Mesh axes of rule 2", next(rules))
                settle(ours)
                return seconds

            def change_seed() -> float:
                seconds = change_field(theirs, "Seed", next(seeds))
                settle(theirs)
                return seconds

            settle(ours)
            settle(theirs)
            return interleave(change_rule, change_seed, pairs, warm_up=3)
        finally:
            dashboard.close()
            bare.close()


def measure(pairs: int = PAIRS) -> list[Result]:
    """Change the rule of `hidden`, and the field of the bare page, in turn."""
    return [
        ratio_result(
            LIMIT,
            name="rule_change",
            ours="from a change of the rules to the redrawn picture of the whole model",
            baseline="from a change of the field of a bare page to its redrawn charts",
            pairs=seconds_of_changes(pairs),
        )
    ]
