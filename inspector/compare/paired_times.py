"""Layouts timed together in one process, in rounds: which can be, their times, and their ratios.

In each round every layout runs once. What slows the machine down for a while slows all of them, so their
ratios are those of the rounds.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inspector import layout as layouts
from inspector.compare.ratio import Ratio, of_rounds
from inspector.layout import Layout, emulation
from inspector.layout.plan import INDIVISIBLE
from inspector.machines.compiler_options import UNSAFE_FLAG
from inspector.records import typed_json
from inspector.records.snapshot import Snapshot
from inspector.records.typed_json import FiniteFloat, NonNegativeInt, Record
from inspector.text.errors import InvalidInput, shown

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

    def to_json(self) -> dict[str, Any]:
        return typed_json.encode_file(self, FORMAT, VERSION)


def from_json(value: Any, what: str = "the times") -> PairedTimes:
    """Read the JSON form. `what` names it in errors.

    Raises:
      InvalidInput: if it is invalid.
    """
    return typed_json.decode_file(PairedTimes, value, what, FORMAT, VERSION)


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


def base_of(times: PairedTimes, baseline: int) -> int | None:
    """Return the layout to divide by: the baseline, or else the first layout that was timed."""
    return baseline if baseline in times.timed else next(iter(times.timed), None)


def ratios(times: PairedTimes, baseline: int, program: str) -> dict[int, Ratio]:
    """Return the ratio of every other layout that ran this program, or none if the baseline did not."""
    base = times.seconds(baseline, program)
    seconds = {layout: times.seconds(layout, program) for layout in times.timed if layout != baseline}
    return {layout: of_rounds(base, own) for layout, own in seconds.items() if base and own}


@dataclass(frozen=True)
class Candidates:
    """Layouts that can be timed, by their position, and the others with a reason."""

    layouts: dict[int, Layout]
    untimed: tuple[Untimed, ...]

    @property
    def devices(self) -> int:
        """The most emulated devices that a layout needs."""
        return max((layout.devices for layout in self.layouts.values()), default=0)


def candidates(snapshots: Sequence[Snapshot], baseline: int, available: int) -> Candidates:
    """Select the baseline, then the others in order as long as all fit into memory together.

    Args:
      available: the bytes of memory of this machine that they may use.
    """
    layouts: dict[int, Layout] = {}
    untimed: list[Untimed] = []
    needed = 0
    for number in sorted(range(len(snapshots)), key=lambda number: number != baseline):
        snapshot = snapshots[number]
        try:
            layout = _layout_to_run(snapshot)
            with_this = needed + emulation.state_bytes_in_a_step(snapshot)
            what = "a train step of this layout"
            if layouts:
                what += f", together with the train states of {len(layouts)} more,"
            emulation.refuse_too_large(with_this, available, what)
        except InvalidInput as refused:
            untimed.append(Untimed(number, str(refused)))
            continue
        layouts[number], needed = layout, with_this
    return Candidates(dict(sorted(layouts.items())), tuple(sorted(untimed, key=lambda entry: entry.layout)))


def refuse_rounds(rounds: int) -> None:
    """Raise InvalidInput if the number of rounds is not allowed."""
    if not LEAST_ROUNDS <= rounds <= MOST_ROUNDS:
        raise InvalidInput(
            f"rounds is {rounds}, but must be from {LEAST_ROUNDS} to {MOST_ROUNDS}: fewer give no 95% "
            "interval of the median"
        )


def refuse_too_few(candidates: Candidates) -> None:
    """Raise InvalidInput, with the first reason, if fewer than two layouts can be timed."""
    if len(candidates.layouts) < 2:
        why = ""
        if candidates.untimed:
            why = f"; layout {candidates.untimed[0].layout + 1} cannot: {candidates.untimed[0].reason}"
        raise InvalidInput(f"at least two layouts must run on emulated devices{why}")


def _layout_to_run(snapshot: Snapshot) -> Layout:
    if snapshot.layout is None:
        raise InvalidInput(f"it has no layout: it is from {snapshot.source.kind}")
    layout = layouts.from_json(snapshot.layout)
    unsafe = snapshot.source.unsafe_compiler_options
    if unsafe is not None:
        raise InvalidInput(
            f"it was compiled with {shown(unsafe)}, which only the command line takes ({UNSAFE_FLAG})"
        )
    if layout.target != "cpu":
        raise InvalidInput(f"its target is {shown(layout.target)}, but must be cpu")
    if layout.processes > 1:
        raise InvalidInput(f"it has {layout.processes} processes, but all layouts are timed in one process")
    uneven = next((finding.message for finding in snapshot.findings if finding.code == INDIVISIBLE), None)
    if uneven is not None:
        raise InvalidInput(uneven)
    return layout
