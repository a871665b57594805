"""Time of one collective over the links between chips.

TPUs: a group runs along axes of a torus, and data hops from neighbour to neighbour. GPUs: a group runs
inside a node, all to all, or over several nodes. The formulas are those of "How to Scale Your Model"
(https://jax-ml.github.io/scaling-book, chapters 3 and 12), with hops counted where an axis has no
wrap-around link. They are lower bounds: nobody else uses the links, and nothing is in the way.

Payloads are those of a Snapshot: the bytes of one execution on one device, of the operand, or for an
all-gather of the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inspector.compiled.hlo.collectives import OPS
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.machines.prediction.cost import Estimate, amount, positive, si_text


@dataclass(frozen=True)
class Ring:
    """One axis of a torus as a group of `size` chips uses it.

    `bytes_per_second` is one link's, one way. Without `wraps` the chips stand in a line. `two_way` is
    false for a ring on which data only goes round one way.
    """

    size: int
    bytes_per_second: float
    hop_seconds: float
    wraps: bool = True
    two_way: bool = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidInput(f"size of a ring is {self.size}, but must be at least 1")
        positive("bytes_per_second of a ring", self.bytes_per_second)
        amount("hop_seconds of a ring", self.hop_seconds)
        if not self.wraps and not self.two_way:
            raise InvalidInput(
                "a ring goes one way but does not wrap around, so that nothing comes back"
            )

    @property
    def hops(self) -> int:
        """Hops until everybody's data has been everywhere."""
        return self.size // 2 if self.wraps and self.two_way else self.size - 1

    @property
    def inward_bytes_per_second(self) -> float:
        """What the worst placed chip can take in: the end of a line has one link."""
        return self.bytes_per_second * (2 if self.wraps and self.two_way else 1)

    @property
    def crossings(self) -> float:
        """All-to-all: how many payloads the busiest link carries one way."""
        if not self.wraps:  # all that goes from one half to the other
            return (self.size // 2) * (self.size - self.size // 2) / self.size
        if not self.two_way:
            return (self.size - 1) / 2
        return (self.size * self.size // 4) / self.size / 2


@dataclass(frozen=True)
class TorusLink:
    """Axes of a torus that a group runs along at once. `assumption` says why these."""

    rings: tuple[Ring, ...]
    assumption: str = ""

    def __post_init__(self) -> None:
        if not self.rings:
            raise InvalidInput("a link over a torus has no rings, but must have at least one")

    @property
    def size(self) -> int:
        return math.prod(ring.size for ring in self.rings)

    @property
    def bytes_per_second(self) -> float:
        """What a chip can send: both ways on a ring, one way on a line, all axes together."""
        return sum(ring.inward_bytes_per_second for ring in self.rings if ring.size > 1)

    @property
    def name(self) -> str:
        return " and ".join(
            f"{'ring' if ring.wraps else 'line'} of {ring.size}" for ring in self.rings
        )


@dataclass(frozen=True)
class NodeLink:
    """A group of `members` GPUs in each of `nodes` nodes. `assumption` says why so.

    `bytes_per_second` is one GPU's into its node, `node_bytes_per_second` that of a whole node of
    `gpus`, which all groups with members in the node share.
    """

    members: int
    nodes: int
    gpus: int
    bytes_per_second: float
    node_bytes_per_second: float
    assumption: str = ""

    def __post_init__(self) -> None:
        if not (1 <= self.members <= self.gpus and self.nodes >= 1):
            raise InvalidInput(
                f"a group has {self.members} members in each of {self.nodes} nodes, but must have "
                f"1 to {self.gpus} in at least one"
            )
        positive("bytes_per_second of a GPU", self.bytes_per_second)
        positive("node_bytes_per_second", self.node_bytes_per_second)

    @property
    def size(self) -> int:
        return self.members * self.nodes

    @property
    def name(self) -> str:
        if self.nodes == 1:
            return f"{counted(self.members, 'GPU')} of one node"
        return f"{counted(self.members, 'GPU')} in each of {self.nodes} nodes"

    @property
    def shared_bytes_per_second(self) -> float:
        """What the group has of its node's network, the node's other GPUs being as busy."""
        return self.node_bytes_per_second * self.members / self.gpus


@dataclass(frozen=True)
class NoLink:
    """A group whose links are not known, and why."""

    assumption: str


Link = TorusLink | NodeLink


def collective_time(op: str, payload_bytes: float, link: Link) -> Estimate:
    """Seconds of one execution of a collective with this payload on every device of the link.

    Raises:
      InvalidInput: the op is unknown, or the payload is no such number.
    """
    if op not in OPS:
        raise InvalidInput(f"op is {shown(op)}, but must be one of {', '.join(OPS)}")
    amount("payload_bytes", payload_bytes)
    if link.size == 1:
        return Estimate(0.0, "a group of one device moves nothing")
    if isinstance(link, NodeLink):
        return _over_nodes(op, payload_bytes, link)
    return _over_torus(op, payload_bytes, link)


def effective_bytes_per_second(link: Link) -> float:
    """The array's bytes over the time of an all-gather, for arrays so large that latency is nothing.

    Raises:
      InvalidInput: the group has one device.
    """
    if link.size == 1:
        raise InvalidInput("a group of one device gathers nothing, so that it has no bandwidth")
    if isinstance(link, NodeLink):
        return 1 / _gather_over_nodes(1.0, link)
    return 1 / _gather_bandwidth(1.0, link)


def _over_torus(op: str, payload: float, link: TorusLink) -> Estimate:
    latency = sum(ring.hops * ring.hop_seconds for ring in link.rings)
    if op in ("all-gather", "reduce-scatter", "all-reduce"):
        times = 2 if op == "all-reduce" else 1
        seconds = times * max(_gather_bandwidth(payload, link), latency)
        return Estimate(seconds, _gather_formula(payload, link, times))
    size = si_text(payload, "B")
    if op in ("all-to-all", "ragged-all-to-all"):
        worst = max(link.rings, key=lambda ring: ring.crossings / ring.bytes_per_second)
        seconds = max(payload * worst.crossings / worst.bytes_per_second, latency)
        dense = ", as if dense" if op == "ragged-all-to-all" else ""
        return Estimate(
            seconds,
            f"{worst.crossings:.3g} × {size} over the busiest link ÷ "
            f"{si_text(worst.bytes_per_second, 'B/s')}{dense}{_at_least(link)}",
        )
    slowest = min(ring.bytes_per_second for ring in link.rings)
    if op == "collective-permute":
        # To a neighbour; on a line the last one's data goes all the way back.
        hops = sum(1 if ring.wraps else ring.size - 1 for ring in link.rings)
        latency = max(ring.hop_seconds for ring in link.rings) * hops
    else:
        hops = sum(ring.hops for ring in link.rings)
    return Estimate(
        max(payload / slowest, latency),
        f"{size} ÷ {si_text(slowest, 'B/s')}, at least {_hops_text(hops, link)}",
    )


def _gather_bandwidth(total: float, link: TorusLink) -> float:
    """Seconds by bandwidth alone until every chip has all of an array of `total` bytes."""
    # Each axis alone: size-th parts, hop by hop. Together they share the array so that all end at once.
    rates = [ring.size * ring.bytes_per_second / ring.hops for ring in link.rings if ring.size > 1]
    # But never faster than what must come in through a chip's links.
    inward = total * (link.size - 1) / link.size / link.bytes_per_second
    return max(total / sum(rates), inward)


def _gather_formula(total: float, link: TorusLink, times: int) -> str:
    twice = "2 × " if times == 2 else ""
    if len(link.rings) == 1:
        (ring,) = link.rings
        part = f"{si_text(total, 'B')} ÷ {ring.size}"
        rate = si_text(ring.bytes_per_second, "B/s")
        hop = si_text(ring.hop_seconds * 1e6, "µs")
        return f"{twice}{counted(ring.hops, 'hop')} × max({part} ÷ {rate}, {hop})"
    rate = total / _gather_bandwidth(total, link) if total else effective_bytes_per_second(link)
    return (
        f"{twice}{si_text(total, 'B')} ÷ {si_text(rate, 'B/s')} of {len(link.rings)} axes at once"
        f"{_at_least(link)}"
    )


def _at_least(link: TorusLink) -> str:
    return f", at least {_hops_text(sum(ring.hops for ring in link.rings), link)}"


def _hops_text(hops: int, link: TorusLink) -> str:
    hop = max(ring.hop_seconds for ring in link.rings)
    return f"{counted(hops, 'hop')} of {si_text(hop * 1e6, 'µs')}"


def _over_nodes(op: str, payload: float, link: NodeLink) -> Estimate:
    size = si_text(payload, "B")
    gpu = si_text(link.bytes_per_second, "B/s")
    if op in ("all-gather", "reduce-scatter", "all-reduce"):
        times = 2 if op == "all-reduce" else 1
        inside = f"{link.members - 1}/{link.members} ÷ {gpu}"
        between = f"{link.nodes - 1}/{link.nodes} ÷ {si_text(link.shared_bytes_per_second, 'B/s')}"
        bound = inside if link.nodes == 1 else between if link.members == 1 else ""
        return Estimate(
            times * _gather_over_nodes(payload, link),
            f"{'2 × ' if times == 2 else ''}{size} × {bound or f'max({inside}, {between})'}",
        )
    # A GPU's own share of the network out of its node.
    out = link.node_bytes_per_second / link.gpus
    out_text = si_text(out, "B/s")
    if op in ("all-to-all", "ragged-all-to-all"):
        dense = ", as if dense" if op == "ragged-all-to-all" else ""
        inside = payload * (link.members - 1) / link.size / link.bytes_per_second
        between = payload * (link.nodes - 1) / link.nodes / out
        if inside >= between:
            return Estimate(inside, f"{size} × {link.members - 1}/{link.size} ÷ {gpu}{dense}")
        return Estimate(
            between, f"{size} × {link.nodes - 1}/{link.nodes} ÷ {out_text} a GPU{dense}"
        )
    if link.nodes == 1:
        return Estimate(payload / link.bytes_per_second, f"{size} ÷ {gpu}")
    return Estimate(payload / min(out, link.bytes_per_second), f"{size} ÷ {out_text} a GPU")


def _gather_over_nodes(total: float, link: NodeLink) -> float:
    """The slower of both levels of the tree: bytes × (D − 1) ÷ (D × bandwidth), D children each."""
    inside = (link.members - 1) / link.members / link.bytes_per_second
    between = (link.nodes - 1) / link.nodes / link.shared_bytes_per_second
    return total * max(inside, between)
