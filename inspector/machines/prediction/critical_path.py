"""The critical path of a simulated step: what must become shorter for the step to become shorter.

From the end of the step backward: an operation of the core begins when the one before it ends. If the core
waits, the transfer that it waits for is on the path instead. A transfer begins when the transfer before it on
the same resource ends, or when the core starts it.
"""

import bisect
from collections.abc import Sequence

from inspector.machines.prediction.simulation import CORE, Span

# Times that are equal but for rounding differ by less than this share of the step.
_SAME = 1e-9


def critical_path(spans: Sequence[Span]) -> frozenset[int]:
    """Return the positions in `spans` of those on the critical path.

    A transfer that occupies several resources is on the path with all of them. The core's waits are not.

    spans: of a simulated step, with one iteration of each loop; the others are one span.
    """
    on_core = [n for n, span in enumerate(spans) if span.resource == CORE]
    transfers = [n for n, span in enumerate(spans) if span.resource != CORE]
    on_core.sort(key=lambda n: spans[n].start)
    transfers.sort(key=lambda n: spans[n].end)
    starts = [spans[n].start for n in on_core]
    ends = [spans[n].end for n in transfers]
    if not on_core:
        return frozenset()
    time = spans[on_core[-1]].end
    same = _SAME * time

    def ending_at(moment: float) -> list[int]:
        low = bisect.bisect_left(ends, moment - same)
        return transfers[low : bisect.bisect_right(ends, moment + same)]

    on_path: set[int] = set()
    while True:
        place = bisect.bisect_left(starts, time - same) - 1
        if place < 0:
            return frozenset(on_path)
        at = on_core[place]
        span = spans[at]
        before = time
        time = span.start
        if span.basis != "wait":
            on_path.add(at)
            continue
        awaited = [n for n in ending_at(span.end) if before - spans[n].start > same]
        while awaited:
            first = spans[awaited[0]]
            own = [
                n
                for n in awaited
                if (spans[n].computation, spans[n].position) == (first.computation, first.position)
            ]
            on_path.update(own)
            time = first.start
            resources = {spans[n].resource for n in own}
            awaited = [
                n for n in ending_at(time) if spans[n].resource in resources and time - spans[n].start > same
            ]
