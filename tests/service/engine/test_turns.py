"""The order of queued runs, compared with a server that starts them one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from inspector.service.engine.turns import in_turn

OWNERS = st.sampled_from("abcd")
QUEUES = st.lists(st.lists(OWNERS, min_size=1, max_size=3), max_size=12)
COUNTS = st.dictionaries(OWNERS, st.integers(0, 3))


@given(QUEUES, COUNTS, st.permutations("abcd"))
def test_the_order_is_that_of_one_start_after_another(queued, running, recent):
    """After each start, the first of a new order is the next of the old one."""
    begun = {owner: number for number, owner in enumerate(recent)}
    order = in_turn(queued, running, begun)
    assert sorted(order) == list(range(len(queued)))
    left, counts, turns = list(range(len(queued))), Counter(running), dict(begun)
    for number, index in enumerate(order):
        first = in_turn([queued[number] for number in left], counts, turns)[0]
        assert left[first] == index
        left.remove(index)
        for owner in set(queued[index]):
            counts[owner] += 1
            turns[owner] = 100 + number


@given(st.lists(OWNERS, max_size=20))
def test_nobody_waits_for_two_runs_of_another_owner(owners):
    """Before the n-th run of an owner begin at most n runs of each other owner."""
    begun = Counter()
    for index in in_turn([[owner] for owner in owners], {}, {}):
        owner = owners[index]
        begun[owner] += 1
        assert all(count <= begun[owner] for count in begun.values())


@given(QUEUES, COUNTS)
def test_runs_of_one_owner_keep_their_order(queued, running):
    order = in_turn(queued, running, {})
    for owner in "abcd":
        own = [index for index in order if queued[index] == [owner]]
        assert own == sorted(own)


def test_an_owner_with_running_runs_comes_later():
    assert in_turn(["a", "a", "b", "b"], {"a": 1}, {}) == [2, 0, 3, 1]
    assert in_turn(["a", "b"], {}, {"a": 5, "b": 2}) == [1, 0]
    assert in_turn([], {"a": 1}, {}) == []
