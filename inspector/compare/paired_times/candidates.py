"""Which layouts can be timed together on this machine, and why others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector import layout as layouts
from inspector.compare.paired_times.record import LEAST_ROUNDS, MOST_ROUNDS, Untimed
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout import emulation as machine
from inspector.layout.plan import INDIVISIBLE


@dataclass(frozen=True)
class Candidates:
    """Layouts by their number among those asked for: those to be timed, and the others with a reason."""

    layouts: dict[int, Layout]
    untimed: tuple[Untimed, ...]

    @property
    def devices(self) -> int:
        """Emulated devices that the largest of them needs; 0 of none."""
        return max((one.devices for one in self.layouts.values()), default=0)


def candidates(snapshots: Sequence[Snapshot], baseline: int, available: int) -> Candidates:
    """Tell apart what can be timed: the baseline first, then in order while all fit into memory together.

    available: bytes of this machine that all of them may count on.
    """
    found: dict[int, Layout] = {}
    untimed: list[Untimed] = []
    needed = 0
    for number in sorted(range(len(snapshots)), key=lambda number: number != baseline):
        one = snapshots[number]
        try:
            layout = _layout_to_run(one)
            with_this = needed + machine.state_bytes_in_a_step(one)
            what = "a train step of this layout"
            if found:
                what += f", together with the train states of {len(found)} more,"
            machine.refuse_too_large(with_this, available, what)
        except InvalidInput as refused:
            untimed.append(Untimed(number, str(refused)))
            continue
        found[number], needed = layout, with_this
    return Candidates(
        dict(sorted(found.items())), tuple(sorted(untimed, key=lambda one: one.layout))
    )


def refuse_rounds(rounds: int) -> None:
    """Refuse a number of rounds that is not allowed.

    Raises:
      InvalidInput: it is too small or too large.
    """
    if not LEAST_ROUNDS <= rounds <= MOST_ROUNDS:
        raise InvalidInput(
            f"rounds is {rounds}, but must be from {LEAST_ROUNDS} to {MOST_ROUNDS}: with fewer there is no "
            "95 % interval of the median"
        )


def refuse_too_few(found: Candidates) -> None:
    """Refuse to time fewer than two layouts against each other.

    Raises:
      InvalidInput: with the reason of the first one that cannot be timed.
    """
    if len(found.layouts) < 2:
        why = f"; not so layout {found.untimed[0].layout + 1}: {found.untimed[0].reason}"
        raise InvalidInput(
            "to be timed together, two layouts or more must run on emulated devices"
            + (why if found.untimed else "")
        )


def _layout_to_run(found: Snapshot) -> Layout:
    if found.layout is None:
        raise InvalidInput(f"it has no layout to run: it comes from {found.source.kind}")
    layout = layouts.from_json(found.layout)
    if layout.target != "cpu":
        raise InvalidInput(
            f"its target is {shown(layout.target)}, and only layouts for cpu are run here"
        )
    if layout.processes > 1:
        raise InvalidInput(
            f"it has {layout.processes} processes, and all layouts are timed in one process"
        )
    uneven = next((one.message for one in found.findings if one.code == INDIVISIBLE), None)
    if uneven is not None:
        raise InvalidInput(uneven)
    return layout
