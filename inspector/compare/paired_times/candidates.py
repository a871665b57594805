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
            with_this = needed + machine.state_bytes_in_a_step(snapshot)
            what = "a train step of this layout"
            if layouts:
                what += f", together with the train states of {len(layouts)} more,"
            machine.refuse_too_large(with_this, available, what)
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
