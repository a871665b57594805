"""How far the ratio of two predicted steps is known, from what both steps have in common.

Both consist of parts of the same kinds. How fast a machine is at each kind is not known well, but it is one
number for both layouts. So the interval of their ratio is the least and the greatest one over a box of such
efficiencies, with and without overlap (`common`). Published pairs of runs give another one (`published`): a
factor with which 95% of the pairs that are called better or worse are right, and half of the measured ratios
are inside. Each prediction of a run was made without the runs of its model.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from inspector.machines.hardware import CHIPS
from inspector.prediction.calibration import accuracy_table
from inspector.records.assessment import LEAST_CHANGE, StepPart
from inspector.text.formatting import and_text, seconds_text, share_text

# Of the published pairs that are called better or worse, at least this share is.
RIGHT = 0.95
# The kinds of parts, in words that go before `take`. The last one is that of collectives.
KINDS = {
    "products": "matrix products",
    "hbm": "reads and writes of HBM",
    "kernels": "starts of kernels",
    "inside": "bytes between chips",
    "between": "bytes between slices",
    "starts": "starts of collectives",
}
_WORK, _SENT = tuple(KINDS)[:3], tuple(KINDS)[3:]
# Groups of kinds that run at the same time: none, communication with work, and products with HBM, too.
_OVERLAPS = ((tuple(KINDS),), (_WORK, _SENT), (_WORK[:1], _WORK[1:], _SENT))
_ROUNDING = 1e-9  # a smaller share of a step comes from adding its parts
_OF_PARTS = {"compute": "products", "rest": "kernels", "inside": "inside", "between": "between"}
_EFFICIENCIES = Path(__file__).with_name("efficiencies.json")

Box = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Needs:
    """Predicted seconds of one step by kind.

    Attributes:
      whole: With the communication that overlaps with work.
      exposed: Without it. The sum is that of the step.
      messages: Number of collectives.
    """

    whole: Mapping[str, float]
    exposed: Mapping[str, float]
    messages: float = 0.0

    @classmethod
    def of(cls, parts: Sequence[StepPart], scale: float = 1.0) -> Needs:
        """Return the needs of a step with these parts, `scale` times over."""
        whole, exposed = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)
        for part in parts:
            seconds = part.seconds + part.hidden
            starts = min(part.latency / seconds, 1.0) if seconds else 0.0
            for name, share in (
                ("starts" if part.is_communication else "kernels", starts),
                (_OF_PARTS.get(part.kind, "hbm"), 1 - starts),
            ):
                whole[name] += scale * seconds * share
                exposed[name] += scale * part.seconds * share
        return cls(whole, exposed, scale * sum(part.messages for part in parts))

    @classmethod
    def alone(cls, kind: str, seconds: float) -> Needs:
        """Return the needs of a step of one kind."""
        needs = dict.fromkeys(KINDS, 0.0) | {kind: seconds}
        return cls(needs, needs)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Needs | None:
        """Return the needs of a published run, from its row of the accuracy table; None if unknown."""
        known = row.get("needs")
        if not known:
            return None
        whole, exposed = ({kind: known.get(kind, (0.0, 0.0))[side] for kind in KINDS} for side in (0, 1))
        return cls(whole, exposed)

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return sum(self.exposed.values())


class Decider(NamedTuple):
    """What decides which of two steps is shorter: a condition, and whether the candidate is better then."""

    condition: str
    candidate: bool


@functools.cache
def _efficiencies() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_EFFICIENCIES.read_text(encoding="utf-8"))
    return table


@functools.cache
def box(chip: str) -> Box:
    """Return the least and the greatest time of each kind on a chip, relative to the predicted one.

    If nothing was measured on the chip, they are the widest of all TPUs or GPUs, or else of all chips.
    """
    ends, own = {}, CHIPS.get(chip)
    for kind in KINDS:
        known = _efficiencies()[kind]
        alike = [name for name in known if own is not None and CHIPS[name].kind == own.kind]
        rows = [known[name] for name in ([chip] if chip in known else alike or known)]
        ends[kind] = min(row["low"] for row in rows), max(row["high"] for row in rows)
    return ends


def assumption(chip: str) -> str | None:
    """Return which efficiencies were not measured on a chip, as a clause; None if all were."""
    missing = [words for kind, words in KINDS.items() if chip not in _efficiencies()[kind]]
    return f"not measured on {chip}, so the widest of its kind: {and_text(missing)}" if missing else None


def common(was: Needs, now: Needs, ends: Box) -> tuple[float, float]:
    """Return the least and the greatest ratio of two steps over a box of efficiencies.

    A layout with less of a kind can be slower at it, because its arrays have shorter sides.
    """
    return 1 / _greatest(was, now, ends), _greatest(now, was, ends)


def _greatest(over: Needs, under: Needs, ends: Box) -> float:
    """Return the greatest ratio; with overlap, a bound of it.

    The longest group of kinds is the step, and each group of the other step is at most as long as that.
    """
    ratios = [_quotient(over.exposed, under.exposed, tuple(KINDS), tuple(KINDS), ends)]
    for groups in _OVERLAPS:
        by_group = (
            min(_quotient(over.whole, under.whole, group, other, ends) for other in groups)
            for group in groups
        )
        ratios.append(max(by_group))
    return max(ratios)


def _quotient(
    over: Mapping[str, float],
    under: Mapping[str, float],
    group: Sequence[str],
    other: Sequence[str],
    ends: Box,
) -> float:
    """Return the greatest quotient of two sums over the box. It is at a corner, as both are linear."""
    terms = []
    for kind in dict.fromkeys((*group, *other)):
        most, least = over[kind] * (kind in group), under[kind] * (kind in other)
        if 0 < over[kind] < under[kind]:
            power = _efficiencies()["shape"].get(kind, {}).get("power", 0.0)
            most *= (under[kind] / over[kind]) ** power
        if most or least:
            terms.append((most, least, *ends[kind]))
    terms.sort(key=lambda term: -(term[0] / term[1] if term[1] else math.inf))
    above, below = (math.fsum(term[side] * term[2] for term in terms) for side in (0, 1))
    if not above or not below:
        return math.inf if above else 0.0
    greatest = above / below
    for most, least, low, high in terms:
        above, below = above + most * (high - low), below + least * (high - low)
        greatest = max(greatest, above / below)
    return greatest


def less_of_everything(was: Needs, now: Needs, greatest: float) -> bool:
    """Return whether a step needs less of every kind that counts, and so is shorter.

    A larger need does not count if it is below 1% of the longer step, and cannot make up for the rest.

    greatest: the greatest ratio of both steps over the box of efficiencies.
    """
    more = math.fsum(max(now.whole[kind] - was.whole[kind], 0.0) for kind in KINDS)
    least = LEAST_CHANGE * was.seconds
    if now.seconds > was.seconds - least:
        return False
    return more <= _ROUNDING * was.seconds or (more < least and greatest < 1)


def decider(was: Needs, now: Needs, ends: Box) -> Decider | None:
    """Return the condition that decides a trade, with all others as predicted.

    It is the nearest one to the prediction, and inside of the box if one is. Return None if nothing does.
    """
    more = {kind: now.exposed[kind] - was.exposed[kind] for kind in KINDS}
    found: list[tuple[bool, float, Decider]] = []
    for kind, own in more.items():
        if not own or not 0 < (times := 1 - sum(more.values()) / own) < math.inf:
            continue
        condition = f"{KINDS[kind]} take less than {times:.2g} times as long as predicted"
        if kind == "starts" and (messages := was.messages + now.messages):
            each = times * (was.whole[kind] + now.whole[kind]) / messages
            condition = f"a collective starts in less than {seconds_text(each)}"
        outside = not ends[kind][0] < times < ends[kind][1]
        found.append((outside, abs(math.log(times)), Decider(condition, own > 0)))
    work, sent = (sum(now.whole[kind] - was.whole[kind] for kind in kinds) for kinds in (_WORK, _SENT))
    if sent and 0 < (share := -work / sent) < 1:
        waits, transfers = (
            sum(seconds[kind] for seconds in both for kind in _SENT)
            for both in ((was.exposed, now.exposed), (was.whole, now.whole))
        )
        condition = f"less than {share_text(share, 0)} of the communication is exposed"
        far = abs(math.log(share * transfers / waits)) if waits else math.inf
        found.append((False, far, Decider(condition, sent > 0)))
    return min(found)[2] if found else None


@dataclass(frozen=True)
class RatioInterval:
    """The factor within which two steps are not distinguishable, and the pairs that it comes from.

    Attributes:
      factor: A predicted ratio says which step is shorter if it is above this factor, or below its inverse.
      pairs: Number of published pairs.
    """

    factor: float
    pairs: int


@dataclass(frozen=True)
class RunPair:
    """Two published runs of one model on one chip, as natural logarithms of the ratio of their steps.

    needs: what both steps need; None if that is unknown.
    """

    model: str
    chip: str
    measured: float
    predicted: float
    needs: tuple[Needs, Needs] | None = None

    @property
    def error(self) -> float:
        """Natural logarithm of the predicted over the measured ratio."""
        return self.predicted - self.measured


@functools.cache
def published(compiled: bool) -> RatioInterval | None:
    """Return the interval of ratios of predictions; None without published pairs.

    Before a compile, the interval is at least as wide as after it: later the same facts are known, too.

    compiled: whether both steps are predicted from compiled schedules, or both before a compile.
    """
    rows = accuracy_table()["rows"]
    own = interval(pairs(rows, "left_out"))
    if compiled or own is None:
        return own
    return interval(pairs(rows, "before_compile"), math.log(own.factor))


def interval(pairs: Sequence[RunPair], least: float = 0.0) -> RatioInterval | None:
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
    # A pair at the limit is not called, also if the factor is rounded.
    return RatioInterval(math.exp(limit) * (1 + 1e-12), len(pairs))


def _share_right(pairs: Sequence[RunPair], limit: float) -> float:
    """Return the share of the pairs with a larger predicted ratio that are right; 1 without any."""
    called = [pair for pair in pairs if abs(pair.predicted) > limit]
    right = sum(pair.predicted * pair.measured > 0 for pair in called)
    return right / len(called) if called else 1.0


def pairs(rows: Sequence[Mapping[str, Any]], key: str) -> list[RunPair]:
    """Return all pairs of runs of one model on one chip, from the rows of the accuracy table.

    key: the prediction of a run: `left_out` from its schedule, or `before_compile`.
    """
    known = [(row, Needs.of_row(row)) for row in rows if row.get(key) and row.get("measured")]
    return [
        RunPair(
            row["model"],
            row["chip"],
            math.log(other["measured"] / row["measured"]),
            math.log(other[key] / row[key]),
            None if was is None or now is None else (was, now),
        )
        for (row, was), (other, now) in itertools.combinations(known, 2)
        if (row["model"], row["chip"]) == (other["model"], other["chip"])
    ]
