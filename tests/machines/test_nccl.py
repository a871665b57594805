"""The expected time of NCCL's collectives against published measurements of nccl-tests.

In a node: ai-dynamo/aiconfigurator at 095f58a5, `nccl_perf`, float16, microseconds by bytes. The constants of
A100, H100 and B200 are fitted to these tables; H200, GB200 and two nodes are not part of the fit. Two nodes:
the guides of oracle-quickstart/oci-hpc-oke (A100, 16 × 100 Gbit/s) and of a cluster with H200 and 8 × 400
Gbit/s. Large sums on 8 H100: NVIDIA/nccl-tests, issue 290.
"""

from __future__ import annotations

import itertools
import statistics

import pytest

from inspector.machines.hardware import Nodes, chip
from inspector.machines.links import NodeLink, collective_time
from inspector.prediction import collective_cost
from inspector.records.collectives import OPERATIONS, OPS

KB, MB = 2**10, 2**20
SIZES = (KB, 64 * KB, MB, 16 * MB, 512 * MB)
# By chip, operation and devices of a node: microseconds for `SIZES`.
IN_A_NODE = {
    ("a100", "all-reduce", 2): (10.1, 13.0, 40.8, 128.2, 2781.1),
    ("a100", "all-reduce", 8): (21.8, 28.1, 38.8, 216.5, 4225.9),
    ("a100", "all-gather", 8): (15.0, 21.2, 26.8, 135.0, 2288.0),
    ("a100", "reduce-scatter", 4): (10.8, 13.9, 21.1, 109.3, 1982.3),
    ("a100", "all-to-all", 8): (12.8, 14.2, 25.8, 114.3, 2313.5),
    ("h100", "all-reduce", 2): (5.9, 7.3, 14.7, 82.2, 1686.4),
    ("h100", "all-reduce", 4): (9.3, 11.3, 18.1, 99.0, 2299.7),
    ("h100", "all-reduce", 8): (15.6, 18.7, 25.4, 121.9, 2111.1),
    ("h100", "all-gather", 2): (5.2, 6.4, 11.3, 56.0, 1038.6),
    ("h100", "all-gather", 8): (10.4, 13.1, 17.1, 68.9, 1401.5),
    ("h100", "reduce-scatter", 8): (10.3, 11.7, 14.6, 69.7, 1399.4),
    ("h100", "all-to-all", 8): (8.1, 8.7, 15.6, 75.7, 1490.4),
    ("h200", "all-reduce", 8): (16.8, 19.9, 26.1, 121.7, 2040.3),
    ("h200", "all-gather", 4): (7.1, 8.8, 13.5, 63.8, 1271.7),
    ("h200", "all-to-all", 4): (6.6, 10.8, 14.5, 64.8, 1262.4),
    ("b200", "all-reduce", 8): (25.2, 29.0, 30.1, 99.1, 1334.6),
    ("b200", "all-gather", 4): (11.1, 14.4, 14.9, 57.9, 710.6),
    ("b200", "reduce-scatter", 2): (8.9, 9.9, 12.0, 37.8, 651.0),
    ("gb200", "all-reduce", 4): (16.0, 17.2, 19.7, 100.2, 1282.2),
    ("gb200", "all-gather", 2): (9.6, 10.5, 12.9, 38.2, 614.5),
    ("gb200", "all-to-all", 4): (10.8, 13.3, 17.8, 46.7, 825.4),
}
# Sums on two nodes of 8: bytes and microseconds.
ON_TWO_NODES = {
    "a100": ((512, 39.3), (64 * KB, 50.1), (MB, 84.5), (16 * MB, 265.9), (64 * MB, 812.7), (1024 * MB, 9073)),
    "h200": ((KB, 43.7), (64 * KB, 65.5), (MB, 76.9), (16 * MB, 207.6), (64 * MB, 460.8), (1024 * MB, 4385)),
}
LARGE_SUMS_ON_H100 = ((256 * MB, 1134.8), (1024 * MB, 4038.8), (4096 * MB, 15773.0))


def link(name: str, members: int, nodes: int = 1) -> NodeLink:
    network = chip(name).network
    assert isinstance(network, Nodes)
    return NodeLink(
        members, nodes, network.gpus, network.bytes_per_second, network.node_bytes_per_second, network.nccl
    )


def measured() -> list[tuple[str, float, NodeLink, float]]:
    """Return operation, bytes, link and seconds of all measurements."""
    rows = [
        (op, size, link(name, devices), microseconds * 1e-6)
        for (name, op, devices), row in IN_A_NODE.items()
        for size, microseconds in zip(SIZES, row, strict=True)
    ]
    rows += [
        ("all-reduce", size, link(name, 8, 2), microseconds * 1e-6)
        for name, row in ON_TWO_NODES.items()
        for size, microseconds in row
    ]
    return rows + [("all-reduce", size, link("h100", 8), us * 1e-6) for size, us in LARGE_SUMS_ON_H100]


def errors(least: float, most: float) -> list[float]:
    return sorted(
        abs(collective_cost.fastest(OPERATIONS[op], size, on).seconds / seconds - 1)
        for op, size, on, seconds in measured()
        if least < size <= most
    )


@pytest.mark.parametrize(
    ("least", "most"),
    [(0, 64 * KB), (64 * KB, MB), (MB, 64 * MB), (64 * MB, 2**40)],
    ids=["64 KiB", "1 MiB", "64 MiB", "more"],
)
def test_expected_times_are_near_measured_ones_in_each_class_of_sizes(least: float, most: float) -> None:
    result = errors(least, most)
    assert len(result) > 20
    assert statistics.median(result) < 0.15
    assert result[int(0.9 * len(result))] < 0.4


def test_no_measurement_is_faster_than_the_lower_bound() -> None:
    for op, size, on, seconds in measured():
        assert collective_time(op, size, on).seconds < seconds


def test_protocols_change_with_the_size() -> None:
    on = link("h100", 8)
    names = [
        collective_cost.fastest(OPERATIONS["all-gather"], size, on).name for size in (KB, 8 * MB, 512 * MB)
    ]
    assert names == ["ring, LL", "ring, LL128", "ring, Simple"]
    # NVLINK SHARP adds in the switches of a whole node. A100 has none.
    large = OPERATIONS["all-reduce"], 512 * MB
    assert collective_cost.fastest(*large, on).name == "NVLS"
    assert collective_cost.fastest(*large, link("h100", 4)).name == "ring, Simple"
    assert collective_cost.fastest(*large, link("a100", 8)).name == "ring, Simple"
    # Rings take a step for each device, trees one for each doubling of nodes.
    assert collective_cost.fastest(OPERATIONS["all-reduce"], KB, link("h100", 8, 32)).name == "tree, LL"


@pytest.mark.parametrize("name", ["a100", "h100", "b200", "gb200"])
@pytest.mark.parametrize("op", OPS)
def test_time_grows_with_bytes_devices_and_nodes(name: str, op: str) -> None:
    def seconds(size: float, members: int, nodes: int) -> float:
        return collective_cost.fastest(OPERATIONS[op], size, link(name, members, nodes)).seconds

    for size in (1, KB, MB, 1024 * MB):
        assert seconds(size, 8, 2) <= seconds(2 * size, 8, 2)
        if OPERATIONS[op].route != "ring":
            continue  # a small all-to-all has more bandwidth to more peers, as measured
        for nodes, more in itertools.pairwise((2, 8, 64)):
            assert seconds(size, 1, nodes) <= seconds(size, 1, more)
    assert seconds(KB, 4, 1) < seconds(KB, 4, 2)


def test_latency_is_the_time_without_bytes() -> None:
    for op, _, on, _ in measured():
        choice = collective_cost.fastest(OPERATIONS[op], 0, on)
        assert choice.sending == 0 and choice.latency > 0
