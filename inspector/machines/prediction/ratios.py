"""How wrong the predicted ratio of two steps can be, from pairs of published runs.

Two layouts of one model on one chip share most of the error of their predictions: the efficiency of its
products, the overhead of its framework. So the interval of their ratio is narrower than that of each step.
It is as narrow as the published pairs allow if 95% of those that are called better or worse are to be right,
and half of the measured ratios are to be inside.
Each prediction was made without the runs of its model.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.machines.prediction.calibration import accuracy_table

# Of the published pairs that are called better or worse, at least this share is.
RIGHT = 0.95


@dataclass(frozen=True)
class RatioInterval:
    """The factor within which two steps are not distinguishable, and the pairs that it comes from.

    Attributes:
      factor: A predicted ratio says which step is shorter if it is above this factor, or below its inverse.
      pairs: Number of published pairs.
      called: Number of these pairs whose predicted ratio is outside of the factor.
      inside: Share of the pairs whose measured ratio is within the factor of the predicted one.
    """

    factor: float
    pairs: int
    called: int = 0
    inside: float = 0.0


@dataclass(frozen=True)
class Pair:
    """Two published runs of one model on one chip, as natural logarithms of the ratio of their steps."""

    model: str
    chip: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Natural logarithm of the predicted over the measured ratio."""
        return self.predicted - self.measured


@functools.cache
def ratio_interval(compiled: bool) -> RatioInterval | None:
    """Return the interval of ratios of predictions; None without published pairs.

    Before a compile, the interval is at least as wide as after it: what is known then is known later, too.

    compiled: whether both steps are predicted from compiled schedules, or both before a compile.
    """
    rows = accuracy_table()["rows"]
    own = interval(pairs(rows, "left_out"))
    if compiled or own is None:
        return own
    return interval(pairs(rows, "before_compile"), math.log(own.factor))


def interval(pairs: Sequence[Pair], least: float = 0.0) -> RatioInterval | None:
    """Return the smallest factor with which at least `RIGHT` of the called pairs are right.

    It is at least the factor that contains half of the measured ratios: the order of two steps can be right
    more often than their ratio is near. Return None without pairs. A pair is right if the step that is
    predicted to be shorter was measured to be shorter.

    least: logarithm of a factor that is not undercut.
    """
    if not pairs:
        return None
    errors = sorted(abs(pair.error) for pair in pairs)
    half = max(errors[(len(errors) - 1) // 2], least)
    sizes = sorted({half, *(abs(pair.predicted) for pair in pairs)})
    limit = next(size for size in sizes if size >= half and _share_right(pairs, size) >= RIGHT)
    return counted(pairs, limit)


def counted(pairs: Sequence[Pair], limit: float) -> RatioInterval:
    """Return the interval whose factor has this logarithm, with the number of pairs that it calls."""
    inside = sum(abs(pair.error) <= limit for pair in pairs) / len(pairs)
    called = sum(abs(pair.predicted) > limit for pair in pairs)
    # A pair at the limit is not called, also if the factor is rounded.
    return RatioInterval(math.exp(limit) * (1 + 1e-12), len(pairs), called, inside)


def _share_right(pairs: Sequence[Pair], limit: float) -> float:
    """Return the share of the pairs with a larger predicted ratio that are right; 1 without any."""
    called = [pair for pair in pairs if abs(pair.predicted) > limit]
    right = sum(pair.predicted * pair.measured > 0 for pair in called)
    return right / len(called) if called else 1.0


def pairs(rows: Sequence[Mapping[str, Any]], key: str) -> list[Pair]:
    """Return all pairs of runs of one model on one chip, from the rows of the accuracy table.

    key: the prediction of a run: `left_out` from its schedule, or `before_compile`.
    """
    known = [row for row in rows if row.get(key) and row.get("measured")]
    return [
        Pair(
            row["model"],
            row["chip"],
            math.log(other["measured"] / row["measured"]),
            math.log(other[key] / row[key]),
        )
        for row, other in itertools.combinations(known, 2)
        if (row["model"], row["chip"]) == (other["model"], other["chip"])
    ]
