"""How wrong the predicted ratio of two steps can be, from pairs of published runs.

Two layouts of one model on one chip share most of the error of their predictions: the efficiency of its
products, the overhead of its framework. So the interval of their ratio is narrower than that of each step.
The error of a pair is the predicted ratio over the measured one. Each prediction was made without the runs of
its model.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inspector.machines.prediction.calibration import accuracy_table

# The share of pairs whose measured ratio is inside of the interval. A layout is called better only if the
# whole interval says so.
CLAIMED = 0.8


@dataclass(frozen=True)
class RatioInterval:
    """The factor by which a predicted ratio can be wrong, and the number of pairs that it comes from."""

    factor: float
    pairs: int


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

    compiled: whether both steps are predicted from compiled schedules, or both before a compile.
    """
    key = "left_out" if compiled else "before_compile"
    return interval(pairs(accuracy_table()["rows"], key))


def interval(found: Sequence[Pair]) -> RatioInterval | None:
    """Return the interval that contains `CLAIMED` of these pairs; None without any."""
    if not found:
        return None
    # A model with many runs has many pairs, which are alike. So each model counts the same.
    models = [pair.model for pair in found]
    weights = np.array([1 / models.count(model) for model in models])
    errors = np.array([abs(pair.error) for pair in found])
    order = np.argsort(errors)
    share = np.cumsum(weights[order]) / weights.sum()
    place = int(np.searchsorted(share, CLAIMED))
    return RatioInterval(math.exp(float(errors[order][min(place, len(found) - 1)])), len(found))


def pairs(rows: Sequence[Mapping[str, Any]], key: str) -> list[Pair]:
    """Return all pairs of runs of one model on one chip, from the rows of the accuracy table.

    key: the prediction of a run: `left_out` from its schedule, or `before_compile`.
    """
    known = [row for row in rows if row.get(key) and row.get("measured")]
    return [
        Pair(
            one["model"],
            one["chip"],
            math.log(other["measured"] / one["measured"]),
            math.log(other[key] / one[key]),
        )
        for one, other in itertools.combinations(known, 2)
        if (one["model"], one["chip"]) == (other["model"], other["chip"])
    ]
