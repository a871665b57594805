"""Two ways to do one thing, timed in turn (A B A B …), and the ratio between them.

What slows the machine down for a while slows both, so that their ratio holds where neither time does.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

Timed = Callable[[], float]  # does the thing once and gives the seconds it took


@dataclass(frozen=True)
class Spread:
    """The middle of some figures, and how far they reach to both sides."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        """The spread of at least one figure; raises ValueError for none."""
        if not figures:
            raise ValueError("there are no figures to take a spread of")
        return cls(statistics.median(figures), min(figures), max(figures))


@dataclass(frozen=True)
class Pair:
    """Seconds of both ways, one taken right after the other."""

    ours: float
    baseline: float

    @property
    def ratio(self) -> float:
        return self.ours / self.baseline


@dataclass(frozen=True)
class Result:
    """What one benchmark found.

    Args:
      name: of the benchmark, as the command line takes it, with a part of it after a comma.
      ours, baseline: what was timed, in words.
      target: what the figures are held against, in words.
      verdict: what came of that, in words: "pass", "over", "under", or "no target".
      notes: further figures of the same run, in words.
    """

    name: str
    ours: str
    baseline: str
    pairs: tuple[Pair, ...]
    target: str
    verdict: str = "no target"
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> Spread:
        """The spread of the pairs' ratios."""
        return Spread.of([pair.ratio for pair in self.pairs])

    @property
    def ratio_of_least(self) -> float:
        """The ratio of both shortest times: what else the machine did has the least part in it."""
        ours, baseline = self.seconds
        return ours.least / baseline.least

    def judged(self, verdict: str) -> Result:
        """The same with this verdict."""
        return replace(self, verdict=verdict)

    @property
    def seconds(self) -> tuple[Spread, Spread]:
        """The spread of our seconds, and of the baseline's."""
        return (
            Spread.of([pair.ours for pair in self.pairs]),
            Spread.of([pair.baseline for pair in self.pairs]),
        )


def interleave(ours: Timed, baseline: Timed, pairs: int, warm_up: int = 1) -> tuple[Pair, ...]:
    """Time both in turn, `pairs` times each, after `warm_up` uncounted times."""
    for _ in range(warm_up):
        ours()
        baseline()
    return tuple(Pair(ours(), baseline()) for _ in range(pairs))


def at_most(figure: float, limit: float) -> str:
    """The verdict on a figure that is to stay below a limit."""
    return "pass" if figure <= limit else "over"


def within(figure: float, middle: float, margin: float) -> str:
    """The verdict on a figure that is to stay near another one."""
    if abs(figure - middle) <= margin:
        return "pass"
    return "over" if figure > middle else "under"


def table(results: Sequence[Result]) -> str:
    """The results as text, a row each, under it what was timed against what."""
    header = ("benchmark", "ratio", "min–max over pairs", "pairs", "target", "verdict")
    rows = [
        (
            result.name,
            ratio_text(result.ratio.median),
            f"{ratio_text(result.ratio.least)}–{ratio_text(result.ratio.most)}",
            str(len(result.pairs)),
            result.target,
            result.verdict,
        )
        for result in results
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, tuple("-" * width for width in widths), *rows)
    ]
    for result in results:
        ours, baseline = result.seconds
        lines += [
            "",
            f"{result.name}: {result.ours} / {result.baseline}",
            f"  {seconds_text(ours)} / {seconds_text(baseline)}; "
            f"the shortest of each {ratio_text(result.ratio_of_least)}",
            *(f"  {note}" for note in result.notes),
        ]
    return "\n".join(lines)


def ratio_text(ratio: float) -> str:
    """Three digits that count: 1.04, 0.0123."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def seconds_text(spread: Spread) -> str:
    """A median and its reach in one unit: 71 ms (68–90)."""
    if spread.median < 1:
        return f"{spread.median * 1e3:.3g} ms ({spread.least * 1e3:.3g}–{spread.most * 1e3:.3g})"
    return f"{spread.median:.2f} s ({spread.least:.2f}–{spread.most:.2f})"


def to_json(result: Result) -> dict:
    """All figures of a result, the single pairs included; times are in seconds."""
    return {
        "name": result.name,
        "ours": result.ours,
        "baseline": result.baseline,
        "ratio": vars(result.ratio) | {"of_least": result.ratio_of_least},
        "pairs": [vars(pair) | {"ratio": pair.ratio} for pair in result.pairs],
        "target": result.target,
        "verdict": result.verdict,
        "notes": list(result.notes),
    }
