"""How much of some arrays a device holds, before and after: bytes, or elements where bytes are not known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from inspector.compare.difference.answers import change_text
from inspector.compare.difference.array_differences import ArrayDifference
from inspector.compare.difference.splitting import elements_per_device
from inspector.core.formatting import bytes_text, elements_text
from inspector.core.snapshot import Array, Snapshot
from inspector.machines.prediction import memory


@dataclass(frozen=True)
class Amount:
    """What one device holds, in one unit; None where it is not known of one of the arrays."""

    unit: str
    before: int | None
    after: int | None

    @property
    def gained(self) -> int | None:
        return None if self.before is None or self.after is None else self.after - self.before

    def text(self, count: int | None, unit: bool = True) -> str:
        """A count in this unit; bytes always say so, elements only with `unit`."""
        if self.unit == "bytes":
            return bytes_text(count)
        return elements_text(count) if unit else elements_text(count).partition(" element")[0]

    @property
    def change(self) -> str:
        """`24.0 MiB more (24.0 MiB → 48.0 MiB, +100%)`; both amounts where one of them is not known."""
        if self.before is None or self.after is None or self.gained is None:
            return f"{self.text(self.before)} → {self.text(self.after)}"
        size = f"{self.text(abs(self.gained))} {'more' if self.gained > 0 else 'less'}"
        if not self.before or not self.after:
            return size
        texts = self.text(self.before, unit=False), self.text(self.after, unit=False)
        both = f"of {texts[0]}" if texts[0] == texts[1] else f"{texts[0]} → {texts[1]}"
        return f"{size} ({both}, {change_text(self.before, self.after)})"


def per_device(differences: Iterable[ArrayDifference], before: Snapshot, after: Snapshot) -> Amount:
    """Bytes per device of these arrays in both, or elements if the bytes of one are not known."""
    pairs = [(one.before, one.after) for one in differences]
    held = _both(pairs, lambda array, _: array.bytes_per_device, before, after)
    if None not in held:
        return Amount("bytes", *held)
    elements = _both(
        pairs, lambda array, found: elements_per_device(array, found.mesh), before, after
    )
    return Amount("bytes", *held) if None in elements else Amount("elements", *elements)


def _both(
    pairs: list[tuple[Array | None, Array | None]],
    ask: Callable[[Array, Snapshot], int | None],
    before: Snapshot,
    after: Snapshot,
) -> tuple[int | None, int | None]:
    sides = []
    for side, found in enumerate((before, after)):
        sides.append(
            memory.summed(0 if pair[side] is None else ask(pair[side], found) for pair in pairs)
        )
    return sides[0], sides[1]
