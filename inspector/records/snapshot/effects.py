"""Records of how changes of a layout affect its cost before a compile."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from inspector.records.typed_json import OMIT_NONE, Amount, NonNegativeInt, Record

Answer = Literal["better", "worse", "not distinguishable", "not comparable"]
# The smaller changes come first.
ChangeKind = Literal[
    "donation",
    "optimizer",
    "batch",
    "constraint",
    "kernel",
    "microbatches",
    "rule",
    "spec",
    "size",
    "swap",
    "axis",
    "preset",
    "rematerialization",
    "offload",
    "chips",
]
KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)

# The key of collectives whose mesh axes are unknown, in `wire_bytes`.
UNKNOWN_AXES = "unknown"


@dataclass(frozen=True)
class LayoutCost(Record):
    """The cost of one program under one layout. None means unknown.

    Attributes:
      state_bytes: Bytes of the train state on one device.
      wire_bytes: Bytes that one device sends in one run, by mesh axes joined by commas; null for axes with
        an unknown amount.
      flops: Floating-point operations of matrix products on one device in one run.
      seconds: Predicted seconds of one run on the chip, as predicted for the layout before a compile. None
        without a chip, or if they are unknown.
      peak_bytes: Bytes that one device needs, estimated. None also if its train state alone does not fit.
      fits: Whether this fits into a device of the chip.
      answer: Whether one run is shorter than one of the current layout. None if that cannot be compared.
      low: Lower end of the interval of its seconds over those of the current layout. None if unknown.
      high: Upper end of the interval of this ratio of seconds. None if unknown.
    """

    state_bytes: NonNegativeInt | None
    wire_bytes: dict[str, NonNegativeInt | None]
    flops: Amount | None
    seconds: Amount | None = None
    peak_bytes: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    fits: bool | None = field(default=None, metadata=OMIT_NONE)
    answer: Answer | None = field(default=None, metadata=OMIT_NONE)
    low: Amount | None = field(default=None, metadata=OMIT_NONE)
    high: Amount | None = field(default=None, metadata=OMIT_NONE)

    @property
    def wire_total(self) -> int | None:
        known = [count for count in self.wire_bytes.values() if count is not None]
        return sum(known) if len(known) == len(self.wire_bytes) else None


@dataclass(frozen=True)
class Change(Record):
    """One change of a layout and the cost of the changed layout.

    Attributes:
      kind: What it changes.
      label: The change in words.
      layout: The changed layout. None if the form of a layout cannot express the change.
      cost: The cost of the changed layout. None if it is unknown, or the layout is not valid.
      reason: Why the changed layout is not valid.
    """

    kind: ChangeKind
    label: str
    layout: dict[str, Any] | None
    cost: LayoutCost | None = None
    reason: str | None = None

    @property
    def words(self) -> str:
        """The change as an instruction inside of a sentence."""
        return self.label[:1].lower() + self.label[1:]


@dataclass(frozen=True)
class Effects(Record):
    """The effect of each rule, sharding constraint and mesh axis of a layout on one program.

    Attributes:
      program: Name of the program.
      chip: The chip of the predicted seconds. None if none was chosen.
      current: The cost of the layout as it is.
      changes: All changes, the largest effect first and invalid ones last.
      left_out: Number of further swaps of two rules that were not tried.
    """

    program: str
    chip: str | None
    current: LayoutCost
    changes: tuple[Change, ...]
    left_out: NonNegativeInt = 0

    @property
    def fitting(self) -> Change | None:
        """The smallest change with which the layout fits; None if no change was enough."""
        fitting = [change for change in self.changes if change.cost and change.cost.fits]
        return min(fitting, key=_size, default=None)

    @property
    def closest(self) -> Change | None:
        """The change with which the layout needs the least memory; None if no change is valid.

        One whose train state alone does not fit comes last, with the bytes of this state.
        """
        known = [
            (cost.peak_bytes is None, cost.peak_bytes or cost.state_bytes or 0, number)
            for number, change in enumerate(self.changes)
            if (cost := change.cost) is not None and cost.fits is not None
        ]
        return self.changes[min(known)[2]] if known else None


def _size(change: Change) -> tuple[float, ...]:
    """Return a rank of changes: single ones first, the smaller kind first, then the shorter step."""
    seconds = None if change.cost is None else change.cost.seconds
    return change.label.count(", and "), KINDS.index(change.kind), seconds is None, seconds or 0


def by_effect(current: LayoutCost, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes in the order of their effect on seconds, wire bytes and memory."""

    def size(before: float | None, after: float | None) -> float:
        return 0.0 if before is None or after is None else abs(after - before)

    def rank(effect: Change) -> tuple[float, ...]:
        cost = effect.cost
        if cost is None:
            return (1.0,)
        return (
            0.0,
            -size(current.seconds, cost.seconds),
            -size(current.wire_total, cost.wire_total),
            -size(current.peak_bytes, cost.peak_bytes),
            -size(current.state_bytes, cost.state_bytes),
        )

    return tuple(sorted(changes, key=rank))
