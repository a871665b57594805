"""Times of layouts that ran together in one process, in rounds: records and their JSON form."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inspector.core import typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.typed_json import FiniteFloat, NonNegativeInt, Record

FORMAT = "sharding-paired-times"
VERSION = 1

LEAST_ROUNDS = 6  # fewer cannot give a 95% interval of the median
MOST_ROUNDS = 50
DEFAULT_ROUNDS = 15

PROGRAMS = ("train_step", "apply")


@dataclass(frozen=True)
class Turn(Record):
    """One measured run, from the call until all returned arrays are ready. Layouts count from 0."""

    round: NonNegativeInt
    layout: NonNegativeInt
    program: str
    seconds: FiniteFloat


@dataclass(frozen=True)
class Untimed(Record):
    """A layout that was not timed, and why, as a clause."""

    layout: NonNegativeInt
    reason: str


@dataclass(frozen=True)
class PairedTimes(Record):
    """All runs of layouts timed together.

    turns: the runs in order. layouts: the number of layouts, including untimed ones.
    devices: the number of emulated devices.
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
        """Return the time of each round, or an empty tuple if the layout was not timed."""
        return tuple(turn.seconds for turn in self.turns if turn.layout == layout and turn.program == program)

    def reason(self, layout: int) -> str | None:
        """Return why the layout was not timed, or None if it was."""
        return next((one.reason for one in self.untimed if one.layout == layout), None)

    def to_json(self) -> dict[str, Any]:
        return typed_json.encode_file(self, FORMAT, VERSION)


def from_json(value: Any, what: str = "the times") -> PairedTimes:
    """Read the JSON form. `what` names it in errors.

    Raises:
      InvalidInput: if it is invalid, or a layout and program lack a run in some round.
    """
    read = typed_json.decode_file(PairedTimes, value, what, FORMAT, VERSION)
    _refuse_incomplete(read, what)
    return read


def orders(layouts: Sequence[int], rounds: int, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Return the order of the layouts in each round.

    In n rounds of n layouts, each layout has every position once: the rounds are rotations of one random
    order, shuffled. The next n rounds use another order.
    """
    draw = random.Random(seed)
    found: list[tuple[int, ...]] = []
    while len(found) < rounds:
        first = draw.sample(list(layouts), len(layouts))
        block = [tuple(first[start:] + first[:start]) for start in range(len(first))]
        draw.shuffle(block)
        found += block
    return tuple(found[:rounds])


def chosen(times: PairedTimes, places: Sequence[int | None], absent: str) -> PairedTimes:
    """Return the times of a selection of layouts with new numbers.

    Args:
      places: the old number of each new layout, or None if it was not part of the run.
      absent: why a layout with None was not timed.
    """
    renumbered: Mapping[int, int] = {old: new for new, old in enumerate(places) if old is not None}
    return replace(
        times,
        layouts=len(places),
        turns=tuple(
            replace(turn, layout=renumbered[turn.layout]) for turn in times.turns if turn.layout in renumbered
        ),
        untimed=(
            *(
                replace(untimed, layout=renumbered[untimed.layout])
                for untimed in times.untimed
                if untimed.layout in renumbered
            ),
            *(Untimed(new, absent) for new, old in enumerate(places) if old is None),
        ),
    )


def _refuse_incomplete(times: PairedTimes, what: str) -> None:
    for turn in times.turns:
        if turn.layout >= times.layouts or turn.round >= times.rounds or turn.program not in PROGRAMS:
            raise InvalidInput(
                f"{what} have a run of {shown(turn.program)} of layout {turn.layout} in round {turn.round}, "
                f"but must have layouts below {times.layouts}, rounds below {times.rounds}, and the "
                f"programs {' and '.join(PROGRAMS)}"
            )
        if turn.seconds <= 0:
            raise InvalidInput(f"{what} have a run of {turn.seconds} seconds, but it must be above 0")
    for layout in times.timed:
        for program in PROGRAMS:
            seen = [turn.round for turn in times.turns if turn.layout == layout and turn.program == program]
            if seen and seen != list(range(times.rounds)):
                raise InvalidInput(
                    f"{what} must have one run of {program} of layout {layout} in every round, in order"
                )
