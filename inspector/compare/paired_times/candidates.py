"""Select the layouts that can be timed together on this machine, with a reason for each other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector import layout as layouts
from inspector.compare.paired_times.times import LEAST_ROUNDS, MOST_ROUNDS, Untimed
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout import emulation as machine
from inspector.layout.plan import INDIVISIBLE
from inspector.machines.compiler_options import UNSAFE_FLAG


@dataclass(frozen=True)
class Candidates:
    """Layouts that can be timed, by their position, and the others with a reason."""

    layouts: dict[int, Layout]
    untimed: tuple[Untimed, ...]

    @property
    def devices(self) -> int:
        """The most emulated devices that a layout needs."""
        return max((one.devices for one in self.layouts.values()), default=0)


def candidates(snapshots: Sequence[Snapshot], baseline: int, available: int) -> Candidates:
    """Select the baseline, then the others in order as long as all fit into memory together.

    Args:
      available: the bytes of memory of this machine that they may use.
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
    """Raise InvalidInput if the number of rounds is not allowed."""
    if not LEAST_ROUNDS <= rounds <= MOST_ROUNDS:
        raise InvalidInput(
            f"rounds is {rounds}, but must be from {LEAST_ROUNDS} to {MOST_ROUNDS}: fewer give no 95% "
            "interval of the median"
        )


def refuse_too_few(found: Candidates) -> None:
    """Raise InvalidInput, with the first reason, if fewer than two layouts can be timed."""
    if len(found.layouts) < 2:
        why = ""
        if found.untimed:
            why = f"; layout {found.untimed[0].layout + 1} cannot: {found.untimed[0].reason}"
        raise InvalidInput(f"at least two layouts must run on emulated devices{why}")


def _layout_to_run(found: Snapshot) -> Layout:
    if found.layout is None:
        raise InvalidInput(f"it has no layout: it is from {found.source.kind}")
    layout = layouts.from_json(found.layout)
    unsafe = found.source.unsafe_compiler_options
    if unsafe is not None:
        raise InvalidInput(
            f"it was compiled with {shown(unsafe)}, which only the command line takes "
            f"({UNSAFE_FLAG})"
        )
    if layout.target != "cpu":
        raise InvalidInput(f"its target is {shown(layout.target)}, but must be cpu")
    if layout.processes > 1:
        raise InvalidInput(
            f"it has {layout.processes} processes, but all layouts are timed in one process"
        )
    uneven = next((one.message for one in found.findings if one.code == INDIVISIBLE), None)
    if uneven is not None:
        raise InvalidInput(uneven)
    return layout
