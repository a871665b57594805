"""Collective times against simulations that move each piece hop by hop."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.machines.hardware import CHIPS, ModelledSeconds
from inspector.machines.links import (
    NodeLink,
    Ring,
    SliceLink,
    TorusLink,
    collective_time,
    effective_bytes_per_second,
)
from inspector.records.collectives import OPS
from inspector.text.errors import InvalidInput

HOPPER = CHIPS["h100"].network.nccl
RATE = 1e9  # B/s of a link
kinds = st.sampled_from([(True, True), (True, False), (False, True)])


def ring(size: int, wraps: bool = True, two_way: bool = True, hop: float = 0.0) -> Ring:
    return Ring(size, RATE, hop, wraps, two_way)


def over(*rings: Ring) -> TorusLink:
    return TorusLink(rings)


def steps_until_all_know_all(size: int, wraps: bool, two_way: bool) -> int:
    """Simulate an all-gather: in each step, a link carries one new piece."""
    held = [{chip} for chip in range(size)]
    # A piece that arrives from one side leaves on the other side, in order of arrival.
    queues = {(chip, way): [chip] for chip in range(size) for way in ((1, -1) if two_way else (1,))}
    steps = 0
    while any(len(pieces) < size for pieces in held):
        moves = []
        for (chip, way), queue in queues.items():
            target = chip + way
            if not wraps and not 0 <= target < size:
                continue
            if queue:
                moves.append((target % size, way, queue.pop(0)))
        for target, way, piece in moves:
            if piece not in held[target]:
                held[target].add(piece)
                queues[target, way].append(piece)
        steps += 1
        assert steps <= size
    return steps


def busiest_link_of_an_all_to_all(size: int, wraps: bool, two_way: bool) -> float:
    """Return the pieces over the busiest link in one direction; a tie splits a piece in halves."""
    load = dict.fromkeys(itertools.product(range(size), (1, -1)), 0.0)
    for source, target in itertools.permutations(range(size), 2):
        forward, backward = (target - source) % size, (source - target) % size
        if not wraps:
            ways = {1: 1.0} if target > source else {-1: 1.0}
        elif not two_way:
            ways = {1: 1.0}
        elif forward == backward:
            ways = {1: 0.5, -1: 0.5}
        else:
            ways = {1: 1.0} if forward < backward else {-1: 1.0}
        for way, share in ways.items():
            at = source
            while at != target:
                load[at, way] += share
                at = (at + way) % size
    return max(load.values())


@given(st.integers(2, 33), kinds)
def test_all_gather_hops(size: int, kind) -> None:
    payload = 1e6 * size
    estimate = collective_time("all-gather", payload, over(ring(size, *kind)))
    hops = steps_until_all_know_all(size, *kind)
    assert estimate.seconds == pytest.approx(hops * payload / size / RATE)


@given(st.integers(2, 20), kinds)
def test_all_to_all_waits_for_the_busiest_link(size: int, kind) -> None:
    payload = 1e6 * size  # so that a piece for each other chip has 1e6 bytes
    estimate = collective_time("all-to-all", payload, over(ring(size, *kind)))
    assert estimate.seconds == pytest.approx(busiest_link_of_an_all_to_all(size, *kind) * 1e6 / RATE)


@given(st.integers(2, 64), st.floats(0, 1e9), kinds, st.sampled_from([0.0, 1e-6]))
def test_ratios_between_operations(size: int, payload: float, kind, hop: float) -> None:
    link = over(ring(size, *kind, hop=hop))
    gather = collective_time("all-gather", payload, link).seconds
    assert collective_time("reduce-scatter", payload, link).seconds == gather
    assert collective_time("all-reduce", payload, link).seconds == pytest.approx(2 * gather)
    assert (
        collective_time("ragged-all-to-all", payload, link).seconds
        == collective_time("all-to-all", payload, link).seconds
    )


@given(st.integers(1, 32), st.sampled_from([1e9, 45e9]))
def test_even_ring_uses_both_directions(half: int, rate: float) -> None:
    link = TorusLink((Ring(2 * half, rate, 1e-6),))
    assert effective_bytes_per_second(link) == pytest.approx(2 * rate)
    assert collective_time("all-gather", 1e12, link).seconds == pytest.approx(1e12 / (2 * rate))


@given(st.lists(st.integers(1, 8).map(lambda n: 2 * n), min_size=1, max_size=3))
def test_axes_share_the_array(lengths: list[int]) -> None:
    rings = [ring(length, hop=1e-6) for length in lengths]
    large = collective_time("all-gather", 1e13, over(*rings)).seconds
    assert large == pytest.approx(1e13 / (2 * RATE) / len(rings))
    assert collective_time("all-gather", 1, over(*rings)).seconds == pytest.approx(
        sum(length // 2 for length in lengths) * 1e-6
    )


@given(st.lists(st.tuples(st.integers(1, 9), kinds), min_size=1, max_size=3))
def test_links_into_a_chip_bound_the_gather(axes) -> None:
    link = over(*(ring(size, *kind) for size, kind in axes))
    if link.size == 1:
        return
    links = sum(2 if kind == (True, True) else 1 for size, kind in axes if size > 1)
    least = 1e9 * (link.size - 1) / link.size / (links * RATE)
    assert collective_time("all-gather", 1e9, link).seconds >= least * (1 - 1e-9)


def test_permute_on_a_ring_and_on_a_line() -> None:
    assert collective_time("collective-permute", 1e6, over(ring(8))).seconds == 1e6 / RATE
    small = [
        collective_time("collective-permute", 1, over(ring(8, wraps, hop=1e-6))).seconds
        for wraps in (True, False)
    ]
    assert small == pytest.approx([1e-6, 7e-6])


def tree_all_gather(members: int, nodes: int, gpus: int, gpu: float, node: float) -> float:
    """Return the seconds of the slower wire: of a GPU into its node, or of a node."""
    total = 1e9
    piece = total / (members * nodes)
    inside = piece * nodes * (members - 1) / gpu
    # All groups with members in the node share its network.
    groups = gpus / members
    between = groups * piece * members * (nodes - 1) / node
    return max(inside, between)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 32))
def test_gather_over_nodes_waits_for_the_slower_level(members: int, nodes: int) -> None:
    link = NodeLink(members, nodes, 8, 450e9, 400e9, HOPPER)
    if link.size > 1:
        expected = tree_all_gather(members, nodes, 8, 450e9, 400e9)
        assert collective_time("all-gather", 1e9, link).seconds == pytest.approx(expected)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 16))
def test_all_to_all_over_nodes_waits_for_the_slower_level(members: int, nodes: int) -> None:
    link = NodeLink(members, nodes, 8, 450e9, 400e9, HOPPER)
    if link.size == 1:
        return
    piece = 1e9 / link.size  # to each GPU of the group, itself included
    inside, outside = 0.0, 0.0
    for other in range(1, link.size):
        if other < members:
            inside += piece
        else:
            outside += piece
    expected = max(inside / 450e9, outside / (400e9 / 8))
    assert collective_time("all-to-all", 1e9, link).seconds == pytest.approx(expected)


links = st.one_of(
    st.lists(st.tuples(st.integers(1, 9), kinds), min_size=1, max_size=3).map(
        lambda axes: over(*(ring(size, *kind, hop=1e-6) for size, kind in axes))
    ),
    st.builds(
        lambda members, nodes: NodeLink(members, nodes, 8, 450e9, 400e9, HOPPER),
        st.integers(1, 8),
        st.integers(1, 9),
    ),
)


@given(st.sampled_from(OPS), st.integers(0, 10**15), links)
def test_time_grows_with_bytes(op: str, payload: int, link) -> None:
    estimate = collective_time(op, payload, link)
    assert isinstance(estimate, ModelledSeconds) and estimate.formula
    assert 0 <= estimate.seconds < math.inf
    assert estimate.seconds <= collective_time(op, 2 * payload + 1, link).seconds
    if link.size == 1:
        assert estimate.seconds == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: collective_time("all-sum", 1, over(ring(2))),
        lambda: collective_time("all-gather", -1, over(ring(2))),
        lambda: collective_time("all-gather", math.nan, over(ring(2))),
        lambda: effective_bytes_per_second(over(ring(1))),
    ],
)
def test_invalid_arguments(call) -> None:
    with pytest.raises(InvalidInput):
        call()


# --- Between TPU slices -------------------------------------------------------------------------


def test_the_books_batch_per_slice_for_data_parallelism_over_dcn() -> None:
    # "How to Scale Your Model", chapter 5: with C = 4.46e14 FLOP/s and W = 6.25e9 B/s of a v5p chip, sending
    # the gradients of a matrix takes as long as its two backward products at 71,360 tokens per slice. The
    # book assumes so many slices that (s − 1) / s is 1, and that each chip sends its part of the gradients.
    peak, dcn, chips, slices = 4.46e14, 6.25e9, 64, 1_000_000
    rows = columns = 8192
    link = SliceLink(over(ring(1)), slices, dcn)
    between = collective_time("all-reduce", 2 * rows * columns / chips, link)
    tokens_per_slice = between.seconds * chips * peak / (2 * 2 * rows * columns)
    assert tokens_per_slice == pytest.approx(71_360, rel=1e-3)


@pytest.mark.parametrize(("slices", "inside"), [(2, 1), (2, 4), (3, 8), (8, 2)])
def test_bytes_between_slices(slices: int, inside: int) -> None:
    dcn, payload = 1e6, 48e6  # so slow that it takes all of the time
    link = SliceLink(over(ring(inside)), slices, dcn)
    # A slice lacks what the others hold. Its devices receive that with all of their bandwidth.
    lacking = payload - payload / slices
    gather = lacking / (inside * dcn)
    assert collective_time("all-gather", payload, link).seconds == pytest.approx(gather)
    assert collective_time("reduce-scatter", payload, link).seconds == pytest.approx(gather)
    assert collective_time("all-reduce", payload, link).seconds == pytest.approx(2 * gather)
    # Each device sends all but its own slice's share of its payload.
    assert collective_time("all-to-all", payload, link).seconds == pytest.approx(lacking / dcn)
    assert collective_time("collective-permute", payload, link).seconds == payload / dcn
    assert payload / effective_bytes_per_second(link) == pytest.approx(gather)


def test_the_torus_of_a_slice_can_be_the_bound() -> None:
    torus = over(ring(8))
    fast = SliceLink(torus, 2, 1e15)
    for op in ("all-gather", "all-reduce"):
        assert collective_time(op, 1e9, fast).seconds == collective_time(op, 1e9, torus).seconds
    # Half of an all-to-all stays in the slice.
    assert (
        collective_time("all-to-all", 1e9, fast).seconds == collective_time("all-to-all", 5e8, torus).seconds
    )
