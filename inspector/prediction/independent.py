"""Operations that could run during a collective: those that neither make its input nor need its result.

A schedule says which operations read the results of which others. The inputs of a collective, and all that
depends on it, follow through these; the rest is independent of it, wherever the compiler put it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inspector.records.snapshot import ScheduledOperation


@dataclass(frozen=True)
class CollectiveSpan:
    """A collective in a computation.

    Attributes:
      start: Position of the operation that begins it.
      end: Position of the one that waits for it. That of the start if it is synchronous, or if another
        computation waits.
      inside: Whether both are in this computation.
    """

    start: int
    end: int
    inside: bool = True


def transfers_of(operations: Sequence[ScheduledOperation], starts: Iterable[int]) -> list[CollectiveSpan]:
    """Return the transfers that begin at these positions of a computation."""
    ends: dict[int, int] = {}
    for place, operation in enumerate(operations):
        if operation.awaits is not None:
            ends.setdefault(operation.awaits, place)
    return [
        CollectiveSpan(start, start)
        if not operations[start].begins
        else CollectiveSpan(start, ends.get(start, start), start in ends)
        for start in starts
    ]


def users_of(
    operations: Sequence[ScheduledOperation], transfers: Iterable[CollectiveSpan]
) -> list[tuple[int, bool] | None]:
    """Return the position of the first operation that needs the result of each transfer.

    With it, whether that is in the next iteration of a loop. None if no operation of the computation does.
    """
    users: dict[int, int] = {}
    in_next: dict[int, int] = {}
    for place, operation in enumerate(operations):
        for source in _places(operation.operands, place):
            users.setdefault(source, place)
        for source in operation.carried or ():
            in_next.setdefault(source, place)
    return [
        (users[transfer.end], False)
        if transfer.end in users
        else (in_next[transfer.end], True)
        if transfer.end in in_next
        else None
        for transfer in transfers
    ]


def independent_seconds(
    operations: Sequence[ScheduledOperation],
    seconds: Sequence[float],
    transfers: Sequence[CollectiveSpan],
    is_loop: bool,
) -> list[tuple[float, float]]:
    """Return of each transfer the seconds of independent operations, in its iteration and in another one.

    Those that already run between its start and its end are left out. Those of another iteration are the
    previous or the next one, whichever has more; 0 if the computation is not the body of a loop.

    Args:
      seconds: that each operation computes.
    """
    count = len(operations)
    own = [0] * count  # as bits: the transfers at this position
    begun = [0] * count
    ended = [0] * count
    for number, transfer in enumerate(transfers):
        own[transfer.start] |= 1 << number
        begun[transfer.start] ^= 1 << number
        ended[transfer.end] ^= 1 << number
    results = [own[place] | ended[place] for place in range(count)]
    after = _needing(operations, results)
    before = _needed(operations, own)
    between = _between(begun, ended)
    dependent = [after[place] | before[place] | between[place] | results[place] for place in range(count)]
    here = _sums(seconds, dependent, len(transfers))
    if not is_loop:
        return [(float(amount), 0.0) for amount in here]
    results_in_next = [0] * count
    inputs_in_last = [0] * count
    for place, operation in enumerate(operations):
        for source in _places(operation.carried, count):
            results_in_next[place] |= after[source] | results[source]
            inputs_in_last[source] |= before[place] | own[place]
    last = _needed(operations, inputs_in_last, inclusive=True)
    following = _needing(operations, results_in_next, inclusive=True)
    elsewhere = np.maximum(_sums(seconds, last, len(transfers)), _sums(seconds, following, len(transfers)))
    return [(float(amount), float(other)) for amount, other in zip(here, elsewhere, strict=True)]


def _places(positions: Sequence[int] | None, count: int) -> list[int]:
    return [place for place in positions or () if place < count]  # the file may come from anywhere


def _needing(
    operations: Sequence[ScheduledOperation], results: Sequence[int], inclusive: bool = False
) -> list[int]:
    """Return of each operation the transfers whose results it is made from, as bits."""
    needing = list(results) if inclusive else [0] * len(operations)
    for place, operation in enumerate(operations):
        for source in _places(operation.operands, place):
            needing[place] |= needing[source] | results[source]
    return needing


def _needed(
    operations: Sequence[ScheduledOperation], inputs: Sequence[int], inclusive: bool = False
) -> list[int]:
    """Return of each operation the transfers whose inputs are made from it, as bits."""
    needed = list(inputs) if inclusive else [0] * len(operations)
    for place in range(len(operations) - 1, -1, -1):
        bits = needed[place] | inputs[place]
        for source in _places(operations[place].operands, place) if bits else ():
            needed[source] |= bits
    return needed


def _between(begun: Sequence[int], ended: Sequence[int]) -> list[int]:
    """Return of each operation the transfers that run meanwhile, as bits.

    A transfer that ends at an earlier position than it begins is also running between two iterations.
    """
    running, open_at_end = 0, 0
    for start, end in zip(begun, ended, strict=True):
        open_at_end = (open_at_end & ~end) | (start & ~end)
    running = open_at_end
    between = []
    for start, end in zip(begun, ended, strict=True):
        running &= ~end
        between.append(running)
        running |= start & ~end
    return between


def _sums(seconds: Sequence[float], dependent: Sequence[int], transfers: int) -> npt.NDArray[np.float64]:
    """Return of each transfer the seconds of the operations without its bit."""
    sums = np.zeros(transfers)
    size = (transfers + 7) // 8
    for taken, bits in zip(seconds, dependent, strict=True):
        if taken:
            packed = np.frombuffer(bits.to_bytes(size, "little"), np.uint8)
            sums += taken * (1 - np.unpackbits(packed, count=transfers, bitorder="little"))
    return sums
