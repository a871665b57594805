"""The order in which queued runs of several owners begin."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence


def in_turn(
    queued: Sequence[Sequence[str]], running: Mapping[str, int], begun: Mapping[str, int]
) -> list[int]:
    """Return the indices of the queued runs in the order in which they begin.

    The owner with the fewest running runs is next; on a tie the one whose last run began first, then the
    one whose next run was queued first. So owners with many queued runs take turns, and no owner waits for
    all runs of another one. The runs of one owner begin in the order of `queued`.

    Args:
      queued: the owners of each run, at least one. Owners with equal requests share a run.
      running: the number of running runs by owner; 0 if missing.
      begun: a number by owner that is higher if the owner's last run began later; -1 if missing.
    """
    waiting: dict[str, deque[int]] = {}
    for index, owners in enumerate(queued):
        for owner in dict.fromkeys(owners):
            waiting.setdefault(owner, deque()).append(index)
    counts = Counter(dict(running))
    last = dict(begun)
    turn = max(last.values(), default=-1)
    order: list[int] = []
    placed: set[int] = set()
    while waiting:
        owner = min(waiting, key=lambda one: (counts[one], last.get(one, -1), waiting[one][0]))
        index = waiting[owner][0]
        order.append(index)
        placed.add(index)
        turn += 1
        for each in dict.fromkeys(queued[index]):
            counts[each] += 1
            last[each] = turn
            runs = waiting[each]
            while runs and runs[0] in placed:
                runs.popleft()
            if not runs:
                del waiting[each]
    return order
