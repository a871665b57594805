"""Independent operations against a search through all paths of three iterations of a loop."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.prediction.independent import CollectiveSpan, independent_seconds, transfers_of, users_of
from inspector.records.snapshot import ScheduledOperation

ITERATIONS = 3


def reached(
    edges: dict[tuple[int, int], set[tuple[int, int]]], start: tuple[int, int]
) -> set[tuple[int, int]]:
    waiting, seen = [start], {start}
    while waiting:
        for following in edges.get(waiting.pop(), ()):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return seen


def by_paths(
    operations: list[ScheduledOperation], seconds: list[float], transfer: CollectiveSpan
) -> tuple[float, float]:
    """Return what `independent_seconds` does for one transfer, from the paths between operations."""
    users: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for iteration in range(ITERATIONS):
        for place, operation in enumerate(operations):
            sources = [(iteration, source) for source in operation.operands or ()]
            sources += [(iteration - 1, source) for source in operation.carried or ()]
            for source in sources:
                users.setdefault(source, set()).add((iteration, place))
    start, end = (1, transfer.start), (1, transfer.end)
    after = reached(users, start) | reached(users, end)
    every = [(iteration, place) for iteration in range(ITERATIONS) for place in range(len(operations))]
    before = {node for node in every if start in reached(users, node)}
    free = [node for node in every if node not in after | before]
    meanwhile = range(transfer.start + 1, transfer.end)
    sums = [sum(seconds[place] for at, place in free if at == n) for n in (0, 2)]
    here = sum(seconds[place] for at, place in free if at == 1 and place not in meanwhile)
    return here, max(sums)


@st.composite
def computations(draw: st.DrawFn) -> tuple[list[ScheduledOperation], list[float], list[CollectiveSpan]]:
    count = draw(st.integers(3, 9))
    places = st.integers(0, count - 1)
    starts = draw(st.dictionaries(places, places, max_size=3))
    pairs = {start: end for start, end in starts.items() if start < end and end not in starts}
    pairs = {start: end for start, end in pairs.items() if list(pairs.values()).count(end) == 1}
    ends = {end: start for start, end in pairs.items()}
    operations = []
    for place in range(count):
        before = st.sets(st.integers(0, place - 1), max_size=2) if place else st.just(set())
        operands = draw(before) | ({ends[place]} if place in ends else set())
        operations.append(
            ScheduledOperation(
                f"op.{place}",
                "fusion",
                begins=True if place in pairs else None,
                awaits=ends.get(place),
                operands=tuple(sorted(operands)),
                carried=tuple(sorted(draw(st.sets(places, max_size=1)))) or None,
            )
        )
    seconds = [
        0.0 if place in pairs or place in ends else float(draw(st.integers(0, 5))) for place in range(count)
    ]
    alone = {place for place in range(count) if place not in pairs and place not in ends}
    chosen = [*pairs, *draw(st.sets(st.sampled_from(sorted(alone)), max_size=1) if alone else st.just(set()))]
    return operations, seconds, transfers_of(operations, chosen)


@given(computations())
def test_independent_operations_are_those_without_a_path(
    given: tuple[list[ScheduledOperation], list[float], list[CollectiveSpan]],
) -> None:
    operations, seconds, transfers = given
    loop = independent_seconds(operations, seconds, transfers, True)
    straight = independent_seconds(operations, seconds, transfers, False)
    for transfer, amounts, alone in zip(transfers, loop, straight, strict=True):
        here, elsewhere = by_paths(operations, seconds, transfer)
        assert amounts == pytest.approx((here, elsewhere))
        assert alone == pytest.approx((here, 0.0))


def test_the_first_user_can_be_in_the_next_iteration() -> None:
    gather = ScheduledOperation("g", "all-gather", collective=0, operands=())
    product = ScheduledOperation("p", "fusion", operands=(), carried=(0,))
    last = ScheduledOperation("q", "fusion", operands=(0,))
    own = [CollectiveSpan(0, 0)]
    assert users_of([gather, product], own) == [(1, True)]
    assert users_of([gather, product, last], own) == [(2, False)]
    assert users_of([gather], own) == [None]


def test_a_transfer_ends_where_something_waits_for_it() -> None:
    start = ScheduledOperation("s", "all-gather-start", collective=0, begins=True, operands=())
    done = ScheduledOperation("d", "all-gather-done", awaits=0, operands=(0,))
    whole = ScheduledOperation("g", "all-gather", collective=1, operands=())
    assert transfers_of([start, whole, done], [0, 1]) == [CollectiveSpan(0, 2), CollectiveSpan(1, 1)]
    assert transfers_of([start, whole], [0]) == [CollectiveSpan(0, 0, inside=False)]


def test_positions_that_a_file_invents_are_left_out() -> None:
    operations = [
        ScheduledOperation("g", "all-gather", collective=0, operands=(7,), carried=(9,)),
        ScheduledOperation("p", "fusion", operands=(1, 5)),
    ]
    (amounts,) = independent_seconds(operations, [0.0, 2.0], [CollectiveSpan(0, 0)], True)
    assert amounts == (2.0, 2.0)


def test_many_collectives_of_a_long_computation_take_linear_time() -> None:
    draw = random.Random(0)
    operations = [
        ScheduledOperation(
            str(place),
            "fusion",
            operands=tuple(sorted({draw.randrange(place) for _ in range(2)})) if place else (),
        )
        for place in range(20_000)
    ]
    transfers = [CollectiveSpan(place, place) for place in range(0, 20_000, 40)]
    begun = time.process_time()
    amounts = independent_seconds(operations, [1.0] * len(operations), transfers, False)
    users = users_of(operations, transfers)
    assert time.process_time() - begun < 5
    assert len(amounts) == len(users) == 500 and all(0 <= here < 20_000 for here, _ in amounts)
