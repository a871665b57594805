"""Traffic summed by mesh axes and operation."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inspector.records.snapshot import Collective, CollectivePart
from inspector.sharding.traffic import (
    Traffic,
    executions_of,
    parts_of,
    sent_by_busiest,
    traffic,
    wire_bytes_of_run,
)


def collective(op: str, axes: tuple[str, ...] | None, times: int | None, payload: int | None, **other):
    fields = {"conditional": False, "wire_bytes_per_device": payload} | other
    return Collective(
        op=op, asynchronous=False, name="x", computation="main", executions=times, mesh_axes=axes,
        group_size=2, groups=4, payload_bytes=payload, **fields,
    )  # fmt: skip


def test_traffic_by_axes_and_operation() -> None:
    rows = traffic(
        [
            collective("all-reduce", ("data",), 1, 10),
            collective("all-reduce", ("model",), 12, 100, wire_bytes_per_device=150),
            collective("all-reduce", ("model",), 1, 7, conditional=True),
            collective("all-gather", ("model",), None, 5),
            collective("all-gather", ("data",), 3, None),
            collective("all-gather", None, 0, None),
        ]
    )
    assert rows == (
        Traffic(("model",), "all-reduce", 2, 13, 1207, 1807, True),
        Traffic(("data",), "all-reduce", 1, 1, 10, 10, False),
        # What never runs moves nothing, whatever it would move.
        Traffic(None, "all-gather", 1, 0, 0, 0, False),
        Traffic(("model",), "all-gather", 1, None, None, None, False),
        Traffic(("data",), "all-gather", 1, 3, None, None, False),
    )
    assert traffic(()) == ()


SIZES = st.lists(st.one_of(st.none(), st.integers(0, 10**6)), min_size=2, max_size=6)


@given(SIZES, st.integers(0, 10**6), st.integers(0, 10**7))
def test_the_parts_of_a_collective_send_no_more_than_it(sizes, payload: int, wire: int) -> None:
    """Also if its parts are recorded with more bytes than the whole, as a damaged file can."""
    whole = collective("all-gather", ("data",), 2, payload, wire_bytes_per_device=wire, arrays=("a",))
    parts = parts_of(replace(whole, parts=tuple(map(CollectivePart, sizes))))
    known = [part for part in parts if wire_bytes_of_run(part) is not None]
    assert len(parts) == len(sizes) and wire_bytes_of_run(*known) <= wire_bytes_of_run(whole)


PAIRS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), unique_by=(lambda p: p[0], lambda p: p[1]))


WITHIN = [(), ("c.1:0",), ("c.1:1",), ("c.1:1", "w.1", "c.2:0"), ("c.1:1", "w.1", "c.2:1"), ("w.2", "c.3:0")]
SENDS = st.tuples(
    st.sampled_from("xyz"), st.integers(0, 99), st.one_of(st.none(), PAIRS), st.sampled_from(WITHIN)
)


@given(st.lists(SENDS, max_size=8))
def test_a_sum_is_that_of_one_device_and_only_sources_of_a_permute_send(sends) -> None:
    """Counted again for each device and each choice of a branch of every conditional."""
    groups: dict[str, list[Collective]] = {axis: [] for axis in "xyz"}
    choices = [*itertools.product(("c.1:0", "c.1:1"), ("c.2:0", "c.2:1"), ("c.3:0", "c.3:1"))]
    # The last device is in no pair.
    by_device = {key: dict.fromkeys("xyz", 0) for key in itertools.product(range(9), choices)}
    times = dict.fromkeys(choices, 0)
    for axis, size, pairs, within in sends:
        known = None if pairs is None else tuple(pairs)
        op = "all-reduce" if known is None else "collective-permute"
        branches = {"source_target_pairs": known, "within": within, "conditional": bool(within)}
        groups[axis].append(collective(op, (axis,), 2, size, **branches))
        for choice in choices:
            taken = {place for place in within if ":" in place} <= {*choice}
            times[choice] += 2 * taken
            for device in range(9):
                if taken and (pairs is None or any(source == device != target for source, target in pairs)):
                    by_device[device, choice][axis] += 2 * size
    everything = [member for members in groups.values() for member in members]
    for row in traffic(everything):
        assert 0 <= (row.of_busiest or 0) <= (row.wire_bytes_per_device or 0)
    assert sum(row.of_busiest or 0 for row in traffic(everything)) == wire_bytes_of_run(*everything)
    sent = sent_by_busiest(groups)
    most = max(sum(own.values()) for own in by_device.values())
    assert sum(sent.values()) == most and sent in by_device.values()
    assert executions_of(everything) == max(times.values())
    assert wire_bytes_of_run(*(member for members in groups.values() for member in members)) == most
    for axis, members in groups.items():
        assert sum(row.wire_bytes_per_device or 0 for row in traffic(members)) >= sent[axis]
        assert wire_bytes_of_run(*members) == max(own[axis] for own in by_device.values())
