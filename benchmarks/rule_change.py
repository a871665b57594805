"""From a change of the rules to the redrawn shard map, against a field of a bare page and its one chart."""

from __future__ import annotations

import itertools

from benchmarks.browser import (
    BARE_PAGE,
    DASHBOARD,
    Server,
    change_field,
    chromium,
    open_page,
    settle,
)
from benchmarks.first_map import CHARTS
from benchmarks.pairing import Result, at_most, interleave

PAIRS = 31
LIMIT = 3.0
# Each of these cuts the shown array otherwise than the one before: 4, 2 and 8 blocks.
MESH_AXES = ("data", "data + model", "model")
SEEDS = ("1", "2", "0")


def measure(pairs: int = PAIRS) -> list[Result]:
    """Change the rule of `hidden`, and the bare page's field, in turn."""
    with chromium() as browser:
        dashboard, bare = Server(DASHBOARD), Server(BARE_PAGE)
        try:
            ours, _ = open_page(browser, dashboard.url, CHARTS[DASHBOARD])
            theirs, _ = open_page(browser, bare.url, CHARTS[BARE_PAGE])
            rules, seeds = itertools.cycle(MESH_AXES), itertools.cycle(SEEDS)

            def change_rule() -> float:
                seconds = change_field(ours, "Mesh axes of rule 2", next(rules))
                settle(ours)
                return seconds

            def change_seed() -> float:
                seconds = change_field(theirs, "Seed", next(seeds))
                settle(theirs)
                return seconds

            settle(ours)
            settle(theirs)
            taken = interleave(change_rule, change_seed, pairs, warm_up=3)
        finally:
            dashboard.close()
            bare.close()
    result = Result(
        name="rule_change",
        ours="from a change of the rules to the redrawn shard map",
        baseline="from a change of its field to the redrawn chart of a bare page",
        pairs=taken,
        target=f"at most {LIMIT:.1f}",
    )
    return [result.judged(at_most(result.ratio.median, LIMIT))]
