"""Expected time of one collective by its bytes and devices. `links.collective_time` is its lower bound.

On TPUs a collective starts, its first data hops to the last chip, and all data crosses the links at a share
of their bandwidth; these add up. On GPUs NCCL chooses an algorithm and a protocol (`machines.nccl`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.machines.links import Link, NodeLink, SliceLink, TorusLink, levels
from inspector.prediction.calibration import ChipConstants
from inspector.records.collectives import OPERATIONS, CollectiveRules

# Expected time of one collective of NCCL: its algorithms and protocols, of which the fastest one counts.
#
# The structure is that of NCCL's own cost model (NCCL 2.30.7, src/graph/tuning.cc): the time of an algorithm
# with a protocol is a latency, which grows with its steps, plus bytes over a rate. NCCL chooses the least.
#
# * A ring has `rounds · (n − 1)` steps. Each device also copies its own part, at about twice the rate.
# * A tree sums up and down: `2 · (m − 1)` steps in a node of m devices and `2 · log2(nodes)` between nodes.
# * NVLS lets the switches of a whole node add arrays: each device sends and receives an array once.
# * LL and LL128 send flags with the data: a shorter latency, at a part of the bandwidth. Simple does not.
# * All-to-alls and permutes are sends to each peer, with LL or Simple.
#
# Latencies and rates in a node are fitted to measurements by `nccl-tests` of groups of 2, 4 and 8 devices on
# A100, H100 and B200 (ai-dynamo/aiconfigurator at 095f58a5, NCCL 2.27 to 2.29). The rest are NCCL's
# own figures. Between nodes, latencies are twice NCCL's: that is measured on two nodes of A100 and H200.


@dataclass(frozen=True)
class Protocol:
    """A protocol of NCCL: latencies in seconds, and its rate.

    base: beyond that of LL, once. ring, tree: of one step between two devices of a node, beyond LL.
    ring_between, tree_between: of one step between two nodes. share: of the rate of a ring.
    """

    name: str
    base: float
    ring: float
    tree: float
    ring_between: float
    tree_between: float
    share: float


# baseLatencies, hwLatencies of NVLINK and of NET (twice), and the rates of the rings in tuning.cc.
LL = Protocol("LL", 0.0, ring=0.0, tree=0.0, ring_between=5.4e-6, tree_between=10e-6, share=0.5)
LL128 = Protocol(
    "LL128", 7.4e-6, ring=1.3e-6, tree=0.65e-6, ring_between=8e-6, tree_between=17e-6, share=0.92
)
SIMPLE = Protocol(
    "Simple", 1.8e-6, ring=2.8e-6, tree=3.4e-6, ring_between=28e-6, tree_between=28e-6, share=1.0
)
PROTOCOLS = (LL, LL128, SIMPLE)
# tuning.cc: llMaxBws of several nodes, the mean of machines with processors of AMD and of Intel.
_LL_BETWEEN = (30e9, 20e9)  # B/s; two nodes, more nodes
# tuning.cc: a step between devices of a node waits for the network while a ring crosses nodes.
_NETWORK_STEP = 1e-6
_TREE_SHARE = 0.46  # of the rate of a ring: 0.92, up and down
_TREE_PIPELINE = 0.6  # tuning.cc, treeCorrectionFactor: 0.4 to 1
_NVLS_STEP = 50e-6  # measured; 25 µs in tuning.cc
_NVLS_TREE_STEP = 2 * 20.9e-6
_NETWORK_SHARE = 0.97  # of the network's nominal rate: 388 of 400 GB/s on two nodes of H200
_OWN_COPY = 2.2  # rate of the copy of a device's own part over that of a ring
_PEER_BASE = 9e-6  # of Simple to a peer, beyond LL
_PEER_LL = 5.5e9  # B/s to each peer
_PEER_SHARE = 0.9  # of the rate of a ring


@dataclass(frozen=True)
class Choice:
    """One algorithm and protocol: its name, latency in seconds, and seconds that grow with the bytes."""

    name: str
    latency: float
    sending: float

    @property
    def seconds(self) -> float:
        return self.latency + self.sending


def fastest(operation: CollectiveRules, payload: float, link: NodeLink) -> Choice:
    """Return what NCCL is expected to choose for one execution of a collective with this payload."""
    return min(_choices(operation, payload, link), key=lambda choice: choice.seconds)


def _choices(operation: CollectiveRules, payload: float, link: NodeLink) -> Iterator[Choice]:
    nccl = link.nccl
    network = link.shared_bytes_per_second * _NETWORK_SHARE
    rate = nccl.ring if link.nodes == 1 else min(nccl.ring, network)
    if operation.route != "ring":
        yield from _to_peers(operation, payload, link, rate)
        return
    moved = payload * (operation.rounds * (link.size - 1) + 1 / _OWN_COPY) / link.size
    for protocol in PROTOCOLS:
        most = rate * protocol.share
        if protocol is LL:
            most = min(most, nccl.ll if link.nodes == 1 else _LL_BETWEEN[link.nodes > 2])
        yield Choice(f"ring, {protocol.name}", _ring_latency(operation.rounds, link, protocol), moved / most)
    if operation.rounds == 1:  # only sums have trees, and NVLS is not faster for one round
        return
    for protocol in PROTOCOLS:
        most = rate * protocol.share * _TREE_SHARE * _TREE_PIPELINE
        if protocol is LL:
            most = min(most, (nccl.ll if link.nodes == 1 else _LL_BETWEEN[link.nodes > 2]) / 2)
        yield Choice(f"tree, {protocol.name}", _tree_latency(link, protocol), payload / most)
    if nccl.nvls and link.members == link.gpus:
        crossings = math.ceil(math.log2(link.nodes))
        most = nccl.nvls
        if link.nodes > 1:
            most = min(most, network * link.nodes / (link.nodes - 1) / 2)
        name = "NVLS" if link.nodes == 1 else "NVLS tree"
        yield Choice(name, _NVLS_STEP + crossings * _NVLS_TREE_STEP, payload / most)


def _ring_latency(rounds: int, link: NodeLink, protocol: Protocol) -> float:
    nccl = link.nccl
    steps = rounds * (link.size - 1)
    between = rounds * (link.nodes - 1) if link.members > 1 else steps
    if link.nodes == 1:
        between = 0
    inside = nccl.hop + protocol.ring
    if link.nodes > 1:
        inside = max(inside, _NETWORK_STEP * (3 if protocol is SIMPLE else 1))
    across = protocol.ring_between if link.members > 1 else protocol.tree_between
    return nccl.base + protocol.base + (steps - between) * inside + between * across


def _tree_latency(link: NodeLink, protocol: Protocol) -> float:
    inside = (link.members - 1) * (link.nccl.hop + protocol.tree)
    between = math.ceil(math.log2(link.nodes)) * protocol.tree_between
    return link.nccl.base + protocol.base + 2 * (inside + between)


def _to_peers(operation: CollectiveRules, payload: float, link: NodeLink, rate: float) -> Iterator[Choice]:
    nccl = link.nccl
    if operation.route == "all-to-all":
        peers = link.size - 1
        share = (peers + 1 / _OWN_COPY) / link.size
        inside = payload * share / (nccl.ring * _PEER_SHARE)
        if link.nodes > 1:
            out = link.node_bytes_per_second / link.gpus * _NETWORK_SHARE
            inside = max(inside, payload * (link.nodes - 1) / link.nodes / out)
    else:
        peers, share, inside = 1, 1.0, payload / (rate * _PEER_SHARE)
    base = nccl.base + 2 * nccl.hop + (LL.tree_between if link.nodes > 1 else 0.0)
    yield Choice("to peers, LL", base, max(inside, payload * share / (peers * _PEER_LL)))
    yield Choice("to peers, Simple", base + _PEER_BASE, inside)


# Seconds in which the chips of a group begin and end a collective together: an all-gather on 2×2 chips of
# tpu7x takes 6.5 to 7.3 µs longer than its bytes at the full bandwidth, for 1 to 64 MB. Two hops of 1 µs are
# part of that. (AI-Hypercomputer/tpu-recipes at c8cfe2f, microbenchmarks/ironwood)
START_SECONDS = 4.8e-6


@dataclass(frozen=True)
class CollectiveCost:
    """Expected seconds of one execution of a collective.

    inside, between: on the links of a slice, and on the network between slices, each without the other.
    latency: seconds that it takes even with no bytes.
    """

    inside: float
    between: float
    latency: float

    @property
    def seconds(self) -> float:
        return max(self.inside, self.between)


def expected(op: str, payload_bytes: float, link: Link, constants: ChipConstants) -> CollectiveCost:
    """Return the expected cost of one execution of a collective whose groups each use such a link."""
    if link.size == 1:
        return CollectiveCost(0.0, 0.0, 0.0)
    if isinstance(link, NodeLink):
        choice = fastest(OPERATIONS[op], payload_bytes, link)
        return CollectiveCost(choice.seconds, 0.0, choice.latency)
    inside, between = levels(op, payload_bytes, _without_hops(link))
    hops = levels(op, 0.0, link)[0]
    if isinstance(link, SliceLink):
        between = START_SECONDS + between / constants.dcn_efficiency
        if not hops:  # nothing of it is sent inside
            return CollectiveCost(0.0, between, START_SECONDS)
    latency = START_SECONDS + hops
    return CollectiveCost(latency + inside / constants.link_efficiency, between, latency)


def _without_hops(link: TorusLink | SliceLink) -> TorusLink | SliceLink:
    if isinstance(link, SliceLink):
        return replace(link, inside=_torus_without_hops(link.inside))
    return _torus_without_hops(link)


def _torus_without_hops(link: TorusLink) -> TorusLink:
    return replace(link, rings=tuple(replace(ring, hop_seconds=0.0) for ring in link.rings))
