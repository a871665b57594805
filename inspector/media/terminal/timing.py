"""Time layouts together on the command line, with progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from inspector.compare.paired_times import DEFAULT_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS, PairedTimes
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.service.inspection import Inspection

OPTION = "--time-together"
HELP = (
    f"run the layouts in turn on emulated devices and give their times as ratios; {LEAST_ROUNDS} to "
    f"{MOST_ROUNDS} rounds, {DEFAULT_ROUNDS} if not said"
)


def parse_rounds(text: str) -> int:
    """The number of rounds that the option gives.

    Raises:
      InvalidInput: it is not one that is allowed.
    """
    rounds = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if not LEAST_ROUNDS <= rounds <= MOST_ROUNDS:
        raise InvalidInput(
            f"{OPTION} is {text[:40]!r}, but must be a number from {LEAST_ROUNDS} to {MOST_ROUNDS}"
        )
    return rounds


def time_together(
    snapshots: Sequence[Snapshot], rounds: int = DEFAULT_ROUNDS, baseline: int = 0
) -> PairedTimes:
    """Time them in one worker; layouts have the numbers of their Snapshots.

    Raises:
      InvalidInput: fewer than two can be timed, or the run failed.
    """
    service = Inspection(run_workers=1)
    try:
        job = service.start_timing(snapshots, rounds, baseline)
        said = None
        while not job.wait(0.1).finished:
            status = job.status()
            part = "round" if status.phase in ("warm up", "rounds") else "layout"
            words = status.phase or ""
            if "of" in status.progress:
                words += f", {part} {status.progress['done'] + 1} of {status.progress['of']}"
            if words and words != said:
                print(words, file=sys.stderr)
                said = words
        return job.answer()
    finally:
        service.close()
