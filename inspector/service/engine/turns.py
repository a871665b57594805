"""The order in which queued runs of several owners begin."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cachetools import LRUCache

from inspector.service.engine.lane import Lane
from inspector.service.engine.requester import LOCAL
from inspector.service.engine.run import Run

MOST_OWNERS = 4096  # whose last turn is remembered


@dataclass(eq=False)
class Queue:
    """The queued runs of a pool, each lane in its own order. Guarded by the lock of the pool.

    Attributes:
      running: returns the runs that have begun and not ended.
      runs: in the order of submission.
    """

    lanes: Mapping[str, Lane]
    running: Callable[[], Iterable[Run]]
    runs: list[Run] = field(default_factory=list)
    # By lane and owner, when the last run began.
    _begun: LRUCache[tuple[str, str], int] = field(default_factory=lambda: LRUCache(MOST_OWNERS))

    def in_turn(self, lane: str) -> list[Run]:
        """Return the queued runs of a lane in the order in which they begin."""
        queue = [run for run in self.runs if run.lane == lane]
        if len(queue) < 2:
            return queue
        owners = [run.owners for run in queue]
        names = {owner for run in owners for owner in run}
        begun = {name: self._begun[lane, name] for name in names if (lane, name) in self._begun}
        return [queue[index] for index in in_turn(owners, self._running_by_owner(lane), begun)]

    def place(self, run: Run) -> int | None:
        """Return the position of a run in its lane, from 1; None if it is not queued."""
        return self.in_turn(run.lane).index(run) + 1 if run.state == "queued" else None

    def next(self, lane: str) -> Run | None:
        """Return the run that begins next, or None if all belong to owners at their limit."""
        most = self.lanes[lane].limits.running
        running = self._running_by_owner(lane)
        for run in self.in_turn(lane):
            if most is None or any(owner == LOCAL.owner or running[owner] < most for owner in run.owners):
                return run
        return None

    def begin(self, run: Run, turn: int) -> None:
        """Take a run out of the queue. `turn` is higher for later ones."""
        self.runs.remove(run)
        run.begin()
        for owner in run.owners:
            self._begun[run.lane, owner] = turn

    def put_back(self, run: Run, gets_turn: bool) -> None:
        """Queue a run before all others. `gets_turn` is whether its owners get their turn again."""
        run.state, run.phases, run.picked_up = "queued", [], False
        self.runs.insert(0, run)
        if gets_turn:
            for owner in run.owners:
                self._begun.pop((run.lane, owner), None)

    def of_owner(self, lane: str, owner: str) -> int:
        """Return the number of queued runs of an owner in a lane."""
        return sum(run.lane == lane and owner in run.owners for run in self.runs)

    def _running_by_owner(self, lane: str) -> Counter[str]:
        running = (run for run in self.running() if run.lane == lane)
        return Counter(owner for run in running for owner in run.owners)


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
