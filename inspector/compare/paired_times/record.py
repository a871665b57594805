"""Layouts timed together: every run in the order in which it happened, and what follows for their ratios.

In each round every layout runs once, and its time is divided by the baseline's of the same round: what slows
the machine down for a while slows both. The interval around a median is made of order statistics, so that
nothing is assumed of how times are distributed, only that rounds do not depend on each other.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from inspector.core import typed_json
from inspector.core.errors import InvalidInput
from inspector.core.typed_json import FiniteFloat, NonNegativeInt, Record

FORMAT = "sharding-paired-times"
VERSION = 1

LEAST_ROUNDS = 6  # the fewest with which an interval of the median reaches 95 %
MOST_ROUNDS = 50
DEFAULT_ROUNDS = 15
COVERAGE = 0.95

PROGRAMS = ("train_step", "apply")

Verdict = Literal["within noise", "slower", "faster"]


@dataclass(frozen=True)
class Turn(Record):
    """One measured run: from the call until every array that it returns is ready. Layouts count from 0."""

    round: NonNegativeInt
    layout: NonNegativeInt
    program: str
    seconds: FiniteFloat


@dataclass(frozen=True)
class Untimed(Record):
    """A layout that was not timed, and why: a clause without a full stop."""

    layout: NonNegativeInt
    reason: str


@dataclass(frozen=True)
class PairedTimes(Record):
    """What came of timing layouts together.

    turns: in the order in which they ran.
    devices: emulated ones of the process that ran them all.
    """

    turns: tuple[Turn, ...]
    untimed: tuple[Untimed, ...]
    layouts: NonNegativeInt
    rounds: NonNegativeInt
    devices: NonNegativeInt
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def timed(self) -> tuple[int, ...]:
        """The layouts that ran, in order."""
        return tuple(sorted({turn.layout for turn in self.turns}))

    def seconds(self, layout: int, program: str) -> tuple[float, ...]:
        """The time of each round; empty if it was not timed."""
        return tuple(
            turn.seconds for turn in self.turns if turn.layout == layout and turn.program == program
        )

    def reason(self, layout: int) -> str | None:
        """Why the layout was not timed; None if it was."""
        return next((one.reason for one in self.untimed if one.layout == layout), None)

    def to_json(self) -> dict[str, Any]:
        return typed_json.encode_file(self, FORMAT, VERSION)


@dataclass(frozen=True)
class Interval:
    """An interval that holds the median of what the values are drawn from with this probability."""

    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class Ratio:
    """How long a layout takes for each second of the baseline.

    rounds: the ratio of each round. seconds, baseline_seconds: medians over all rounds.
    """

    layout: int
    program: str
    rounds: tuple[float, ...]
    median: float
    interval: Interval
    seconds: float
    baseline_seconds: float

    @property
    def verdict(self) -> Verdict:
        """Within noise where the interval holds 1."""
        if self.interval.low > 1:
            return "slower"
        return "faster" if self.interval.high < 1 else "within noise"


def from_json(value: Any, what: str = "the times") -> PairedTimes:
    """Read what `to_json` wrote.

    Raises:
      InvalidInput: it is not that, or does not have one run of each layout and program in every round.
    """
    read = typed_json.decode_file(PairedTimes, value, what, FORMAT, VERSION)
    _refuse_incomplete(read, what)
    return read


def orders(layouts: Sequence[int], rounds: int, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """The order of the layouts in each round.

    As many rounds as there are layouts have each of them once at every place: rotations of one order, in
    shuffled order. The next ones rotate another, so that nobody always follows the same one.
    """
    draw = random.Random(seed)
    found: list[tuple[int, ...]] = []
    while len(found) < rounds:
        first = draw.sample(list(layouts), len(layouts))
        block = [tuple(first[start:] + first[:start]) for start in range(len(first))]
        draw.shuffle(block)
        found += block
    return tuple(found[:rounds])


def interval_of_median(values: Sequence[float], coverage: float = COVERAGE) -> Interval:
    """The k-th smallest to the k-th largest value, k as large as the coverage allows; any distribution.

    Of n values as many are below the median of their distribution as heads fall in n throws of a coin, so
    that it lies between these two with probability 1 − 2·P(Binomial(n, ½) < k) (Conover, Practical
    Nonparametric Statistics, section 3.2). Where even the range of all values covers less, it is that range.

    Raises:
      ValueError: there are no values.
    """
    if not values:
        raise ValueError("there are no values to take an interval of")
    ordered = sorted(values)
    count = len(ordered)
    below = 1  # ways to have fewer than k heads, of 2**count
    k, reached = 1, 1 - 2 * below / 2**count
    while k < (count + 1) // 2:
        below += math.comb(count, k)
        covered = 1 - 2 * below / 2**count
        if covered < coverage:
            break
        k, reached = k + 1, covered
    return Interval(ordered[k - 1], ordered[count - k], max(reached, 0.0))


def base_of(times: PairedTimes, baseline: int) -> int | None:
    """What the ratios are to: the baseline if it was timed, else the first that was; None if none was."""
    return baseline if baseline in times.timed else next(iter(times.timed), None)


def ratios(times: PairedTimes, baseline: int, program: str) -> tuple[Ratio, ...]:
    """The ratio of every other layout that has run this program, in order; none if the baseline has not."""
    base = times.seconds(baseline, program)
    found = []
    for layout in times.timed:
        own = times.seconds(layout, program)
        if layout == baseline or not own or not base:
            continue
        each = tuple(one / other for one, other in zip(own, base, strict=True))
        found.append(
            Ratio(
                layout,
                program,
                each,
                statistics.median(each),
                interval_of_median(each),
                statistics.median(own),
                statistics.median(base),
            )
        )
    return tuple(found)


def chosen(times: PairedTimes, places: Sequence[int | None], absent: str) -> PairedTimes:
    """The times of some of the layouts, numbered anew: the first is the one that had number `places[0]`.

    A place of None is a layout that is not among them; `absent` is the reason that it is given.
    """
    renumbered: Mapping[int, int] = {old: new for new, old in enumerate(places) if old is not None}
    return replace(
        times,
        layouts=len(places),
        turns=tuple(
            replace(turn, layout=renumbered[turn.layout])
            for turn in times.turns
            if turn.layout in renumbered
        ),
        untimed=(
            *(
                replace(one, layout=renumbered[one.layout])
                for one in times.untimed
                if one.layout in renumbered
            ),
            *(Untimed(new, absent) for new, old in enumerate(places) if old is None),
        ),
    )


def _refuse_incomplete(times: PairedTimes, what: str) -> None:
    for turn in times.turns:
        if (
            turn.layout >= times.layouts
            or turn.round >= times.rounds
            or turn.program not in PROGRAMS
        ):
            raise InvalidInput(
                f"{what} have a run of layout {turn.layout} in round {turn.round}, "
                f"but {times.layouts} layouts and {times.rounds} rounds of {' and '.join(PROGRAMS)}"
            )
        if turn.seconds <= 0:
            raise InvalidInput(
                f"{what} have a run of {turn.seconds} seconds, but it must be above 0"
            )
    for layout in times.timed:
        for program in PROGRAMS:
            seen = [
                turn.round
                for turn in times.turns
                if turn.layout == layout and turn.program == program
            ]
            if seen and seen != list(range(times.rounds)):
                raise InvalidInput(
                    f"{what} must have one run of {program} of layout {layout} in every round, in order"
                )
