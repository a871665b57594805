"""Records of how changes of a layout affect its cost before a compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from inspector.core.typed_json import Amount, NonNegativeInt, Record

ChangeKind = Literal["rule", "swap", "constraint", "axis", "spec", "preset"]

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
    """

    state_bytes: NonNegativeInt | None
    wire_bytes: dict[str, NonNegativeInt | None]
    flops: Amount | None
    seconds: Amount | None = None

    @property
    def wire_total(self) -> int | None:
        known = [count for count in self.wire_bytes.values() if count is not None]
        return sum(known) if len(known) == len(self.wire_bytes) else None


@dataclass(frozen=True)
class Effect(Record):
    """One change of a layout and the cost of the changed layout.

    Attributes:
      kind: The changed part: a rule, two rules that swap their mesh axes, a sharding constraint, a mesh axis,
        the PartitionSpec of an array, or mesh and rules as those of a preset.
      label: The change in words.
      layout: The changed layout. None if the form of a layout cannot express the change.
      cost: The cost of the changed layout. None if it is not valid.
      reason: Why the changed layout is not valid.
    """

    kind: ChangeKind
    label: str
    layout: dict[str, Any] | None
    cost: LayoutCost | None
    reason: str | None = None


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
    changes: tuple[Effect, ...]
    left_out: NonNegativeInt = 0


def by_effect(current: LayoutCost, changes: Sequence[Effect]) -> tuple[Effect, ...]:
    """Return the changes in the order of their effect on seconds, wire bytes and train state."""

    def size(before: float | None, after: float | None) -> float:
        return 0.0 if before is None or after is None else abs(after - before)

    def rank(effect: Effect) -> tuple[float, ...]:
        cost = effect.cost
        if cost is None:
            return (1.0,)
        return (
            0.0,
            -size(current.seconds, cost.seconds),
            -size(current.wire_total, cost.wire_total),
            -size(current.state_bytes, cost.state_bytes),
        )

    return tuple(sorted(changes, key=rank))
