"""Time two ways of doing the same thing in turn (A B A B …), and report their ratio.

Other load on the machine slows both down, so the ratio is more stable than either time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Timed = Callable[[], float]  # runs once and returns seconds


@dataclass(frozen=True)
class Spread:
    """The median and the range of some figures."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        """Return the spread of at least one figure.

        Raises:
          ValueError: there are no figures.
        """
        if not figures:
            raise ValueError("there are no figures to take a spread of")
        return cls(statistics.median(figures), min(figures), max(figures))


@dataclass(frozen=True)
class Pair:
    """The seconds of both ways, measured one right after the other."""

    ours: float
    baseline: float

    @property
    def ratio(self) -> float:
        return self.ours / self.baseline


@dataclass(frozen=True)
class Result:
    """The result of one benchmark.

    Attributes:
      name: the name on the command line; the name of a part follows after a comma.
      ours, baseline: descriptions of both ways.
      target: the target in words.
      verdict: "pass", "over", "under", or "no target".
      notes: more figures of the same run, in words.
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
        """The spread of the ratios of all pairs."""
        return Spread.of([pair.ratio for pair in self.pairs])

    @property
    def ratio_of_least(self) -> float:
        """The ratio of both shortest times, which other load on the machine affects least."""
        ours, baseline = self.seconds
        return ours.least / baseline.least

    def judged(self, verdict: str) -> Result:
        """Return the result with this verdict."""
        return replace(self, verdict=verdict)

    @property
    def seconds(self) -> tuple[Spread, Spread]:
        """The spread of our seconds, and of the seconds of the baseline."""
        return (
            Spread.of([pair.ours for pair in self.pairs]),
            Spread.of([pair.baseline for pair in self.pairs]),
        )


def interleave(ours: Timed, baseline: Timed, pairs: int, warm_up: int = 1) -> tuple[Pair, ...]:
    """Time both in turn, `pairs` times each, after `warm_up` runs that do not count."""
    for _ in range(warm_up):
        ours()
        baseline()
    return tuple(Pair(ours(), baseline()) for _ in range(pairs))


def ratio_result(limit: float, **fields: Any) -> Result:
    """Return a Result whose target is a median ratio of at most `limit`."""
    result = Result(target=f"ratio at most {limit:.2f}", **fields)
    return result.judged(at_most(result.ratio.median, limit))


def seconds_result(limit: float, **fields: Any) -> Result:
    """Return a Result whose target is a median of at most `limit` seconds of our own."""
    text = f"{limit:g} s" if limit >= 1 else f"{limit * 1e3:.0f} ms"
    result = Result(target=f"at most {text}", **fields)
    return result.judged(at_most(result.seconds[0].median, limit))


def at_most(figure: float, limit: float) -> str:
    """Return the verdict on a figure with an upper limit."""
    return "pass" if figure <= limit else "over"


def within(figure: float, middle: float, margin: float) -> str:
    """Return the verdict on a figure that should be within `margin` of `middle`."""
    if abs(figure - middle) <= margin:
        return "pass"
    return "over" if figure > middle else "under"


def table(results: Sequence[Result]) -> str:
    """Return the results as a table, followed by the descriptions and seconds of each."""
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
    """Return a ratio with at most three significant digits: 1.04, 0.012."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def seconds_text(spread: Spread) -> str:
    """Return a median and its range in one unit: 71 ms (68–90)."""
    if spread.median < 1:
        return f"{spread.median * 1e3:.3g} ms ({spread.least * 1e3:.3g}–{spread.most * 1e3:.3g})"
    return f"{spread.median:.2f} s ({spread.least:.2f}–{spread.most:.2f})"


def to_json(result: Result) -> dict[str, Any]:
    """Return all figures of a result, including each pair; times are in seconds."""
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
