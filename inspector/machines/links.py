"""Model the time of one collective over the links between chips.

On TPUs a group runs along axes of a torus, and data hops from neighbor to neighbor. Between TPU slices it
crosses the data center network (DCN). On GPUs a group runs inside a node, all to all, or over several nodes.
The formulas are those of "How to Scale Your Model"
(https://jax-ml.github.io/scaling-book, chapters 3 and 12), with hops counted on an axis without
wrap-around link. Times are lower bounds: no other traffic uses the links.

`payload_bytes` is that of a Snapshot's Collective.
"""

import math
from dataclasses import dataclass

from inspector.machines.hardware import ModelledSeconds, Nccl, require_amount, si_text
from inspector.records.collectives import OPERATIONS, OPS, CollectiveRules
from inspector.text.errors import InvalidInput, require_one_of
from inspector.text.formatting import counted


@dataclass(frozen=True)
class Ring:
    """One axis of a torus with `size` chips of a group.

    bytes_per_second: of one link in one direction. hop_seconds: least time from chip to chip.
    wraps: the ends are linked; otherwise the chips form a line.
    two_way: data travels in both directions at once, as it always does on a line.
    """

    size: int
    bytes_per_second: float
    hop_seconds: float
    wraps: bool = True
    two_way: bool = True

    @property
    def hops(self) -> int:
        """Hops until the data of every chip has reached every other."""
        return self.size // 2 if self.wraps and self.two_way else self.size - 1

    @property
    def inward_bytes_per_second(self) -> float:
        """Bytes per second into the slowest chip; the end of a line has a single link."""
        return self.bytes_per_second * (2 if self.wraps and self.two_way else 1)

    @property
    def crossings(self) -> float:
        """All-to-all: payloads over the busiest link in one direction."""
        if not self.wraps:  # everything from one half to the other
            return (self.size // 2) * (self.size - self.size // 2) / self.size
        if not self.two_way:
            return (self.size - 1) / 2
        return (self.size * self.size // 4) / self.size / 2


@dataclass(frozen=True, kw_only=True)
class _Explained:
    """The assumptions about the links of a group, in a sentence; empty without any."""

    assumption: str = ""


@dataclass(frozen=True)
class TorusLink(_Explained):
    """Axes of a torus that a group uses at once.

    fastest: bytes per second of all links of a chip, if the places of the devices are assumed. Wherever they
      are, no transfer is faster. None if the places are known.
    """

    rings: tuple[Ring, ...]
    fastest: float | None = None

    @property
    def size(self) -> int:
        return math.prod(ring.size for ring in self.rings)

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second that a chip can send over all axes; on a line in one direction only."""
        return sum(ring.inward_bytes_per_second for ring in self.rings if ring.size > 1)

    @property
    def name(self) -> str:
        return " and ".join(f"{'ring' if ring.wraps else 'line'} of {ring.size}" for ring in self.rings)


@dataclass(frozen=True)
class SliceLink(_Explained):
    """A group with the devices of `inside` in each of `slices` TPU slices.

    bytes_per_second: of one device into the data center network.
    """

    inside: TorusLink
    slices: int
    bytes_per_second: float

    @property
    def size(self) -> int:
        return self.inside.size * self.slices

    @property
    def name(self) -> str:
        across = f"DCN between {self.slices} slices"
        return across if self.inside.size == 1 else f"{across}, {self.inside.name} in each"


@dataclass(frozen=True)
class NodeLink(_Explained):
    """A group of `members` GPUs in each of `nodes` nodes.

    bytes_per_second: of one GPU into its node.
    node_bytes_per_second: of a node with `gpus` GPUs into the network, shared by its groups.
    nccl: what its collectives reach.
    """

    members: int
    nodes: int
    gpus: int
    bytes_per_second: float
    node_bytes_per_second: float
    nccl: Nccl

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
        """The group's share of its node's network bandwidth."""
        return self.node_bytes_per_second * self.members / self.gpus


@dataclass(frozen=True)
class NoLink(_Explained):
    """A group with unknown links; `assumption` says why."""


Link = TorusLink | NodeLink | SliceLink


def collective_time(op: str, payload_bytes: float, link: Link) -> ModelledSeconds:
    """Return the seconds of one execution of a collective whose groups each use such a link."""
    require_one_of("op", op, OPS)
    operation = OPERATIONS[op]
    require_amount("payload_bytes", payload_bytes)
    if link.size == 1:
        return ModelledSeconds(0.0, lambda: "a group of one device moves nothing")
    if isinstance(link, NodeLink):
        return _over_nodes(operation, payload_bytes, link)
    if isinstance(link, SliceLink):
        return _over_slices(operation, payload_bytes, link)
    return _over_torus(operation, payload_bytes, link)


def levels(op: str, payload_bytes: float, link: Link) -> tuple[float, float]:
    """Return the seconds of a collective inside of a slice, and between slices, each without the other."""
    if not isinstance(link, SliceLink):
        return collective_time(op, payload_bytes, link).seconds, 0.0
    operation = OPERATIONS[op]
    between = _between_slices(operation, payload_bytes, link).seconds
    kept = _kept_inside(operation, payload_bytes, link)
    return (0.0 if kept is None else _over_torus(operation, kept, link.inside).seconds), between


def effective_bytes_per_second(link: Link) -> float:
    """Return the bytes of a large array over the time of its all-gather, without latency.

    Raise InvalidInput for a group of one device.
    """
    if link.size == 1:
        raise InvalidInput("size of the group is 1, but must be at least 2 to have a bandwidth")
    if isinstance(link, NodeLink):
        return 1 / _gather_over_nodes(1.0, link)
    if isinstance(link, SliceLink):
        inside = _gather_bandwidth(1.0, link.inside) if link.inside.size > 1 else 0.0
        return 1 / max(inside, _gather_between_slices(1.0, link))
    return 1 / _gather_bandwidth(1.0, link)


def _over_torus(operation: CollectiveRules, payload: float, link: TorusLink) -> ModelledSeconds:
    latency = sum(ring.hops * ring.hop_seconds for ring in link.rings)
    if operation.route == "ring":
        seconds = operation.rounds * max(_gather_bandwidth(payload, link), latency)
        return ModelledSeconds(seconds, lambda: _gather_formula(payload, link, operation.rounds))
    if operation.route == "all-to-all":
        worst = max(link.rings, key=lambda ring: ring.crossings / ring.bytes_per_second)
        return ModelledSeconds(
            max(payload * worst.crossings / worst.bytes_per_second, latency),
            lambda: (
                f"{worst.crossings:.3g} × {si_text(payload, 'B')} over the busiest link ÷ "
                f"{si_text(worst.bytes_per_second, 'B/s')}{_dense(operation)}{_at_least(link)}"
            ),
        )
    slowest = min(ring.bytes_per_second for ring in link.rings)
    if operation.route == "pairs":
        # To a neighbor. On a line the data of the last chip travels all the way back.
        hops = sum(1 if ring.wraps else ring.size - 1 for ring in link.rings)
        latency = max(ring.hop_seconds for ring in link.rings) * hops
    else:
        hops = sum(ring.hops for ring in link.rings)
    return ModelledSeconds(
        max(payload / slowest, latency),
        lambda: f"{si_text(payload, 'B')} ÷ {si_text(slowest, 'B/s')}, at least {_hops_text(hops, link)}",
    )


def _gather_bandwidth(total: float, link: TorusLink) -> float:
    """Return the seconds, without latency, until every chip has all `total` bytes of an array."""
    # The axes share the array such that all end at the same time.
    rates = [ring.size * ring.bytes_per_second / ring.hops for ring in link.rings if ring.size > 1]
    # The links into one chip are a lower bound.
    inward = total * (link.size - 1) / link.size / link.bytes_per_second
    return max(total / sum(rates), inward)


def _gather_formula(total: float, link: TorusLink, rounds: int) -> str:
    factor = _factor(rounds)
    if len(link.rings) == 1:
        (ring,) = link.rings
        part = f"{si_text(total, 'B')} ÷ {ring.size} ÷ {si_text(ring.bytes_per_second, 'B/s')}"
        hop = si_text(ring.hop_seconds * 1e6, "µs")
        return f"{factor}{counted(ring.hops, 'hop')} × max({part}, {hop})"
    rate = total / _gather_bandwidth(total, link) if total else effective_bytes_per_second(link)
    return (
        f"{factor}{si_text(total, 'B')} ÷ {si_text(rate, 'B/s')} of {len(link.rings)} axes at once"
        f"{_at_least(link)}"
    )


def _at_least(link: TorusLink) -> str:
    return f", at least {_hops_text(sum(ring.hops for ring in link.rings), link)}"


def _hops_text(hops: int, link: TorusLink) -> str:
    hop = max(ring.hop_seconds for ring in link.rings)
    return f"{counted(hops, 'hop')} of {si_text(hop * 1e6, 'µs')}"


def _over_nodes(operation: CollectiveRules, payload: float, link: NodeLink) -> ModelledSeconds:
    # One GPU's share of its node's network.
    out = link.node_bytes_per_second / link.gpus
    if operation.route == "ring":
        inside, between = _rounds_over_nodes(operation, link)
        return ModelledSeconds(
            payload * max(inside, between),
            lambda: _formula_over_nodes(payload, link, operation.rounds),
        )
    if operation.route == "all-to-all":
        inner = payload * (link.members - 1) / link.size / link.bytes_per_second
        outer = payload * (link.nodes - 1) / link.nodes / out
        if inner >= outer:
            part, rate, per_node = f"{link.members - 1}/{link.size}", link.bytes_per_second, ""
        else:
            part, rate, per_node = f"{link.nodes - 1}/{link.nodes}", out, " per GPU"
        return ModelledSeconds(
            max(inner, outer),
            lambda: f"{si_text(payload, 'B')} × {part} ÷ {si_text(rate, 'B/s')}{per_node}{_dense(operation)}",
        )
    if link.nodes == 1:
        rate, per_node = link.bytes_per_second, ""
    else:
        rate, per_node = min(out, link.bytes_per_second), " per GPU"
    return ModelledSeconds(
        payload / rate, lambda: f"{si_text(payload, 'B')} ÷ {si_text(rate, 'B/s')}{per_node}"
    )


def _rounds_over_nodes(operation: CollectiveRules, link: NodeLink) -> tuple[float, float]:
    """Return the least seconds for each byte in a node, and between nodes.

    Switches that add arrays receive each byte of a sum once and send it once, instead of 2 (m - 1) / m times.
    """
    inside = operation.rounds * (link.members - 1) / link.members
    if link.nccl.nvls is not None:
        inside = min(inside, 1.0)
    between = operation.rounds * (link.nodes - 1) / link.nodes
    return inside / link.bytes_per_second, between / link.shared_bytes_per_second


def _formula_over_nodes(total: float, link: NodeLink, rounds: int) -> str:
    part = f"{link.members - 1}/{link.members}"
    if rounds > 1 and link.nccl.nvls is not None and link.members > 2:
        part = f"1/{rounds} in the switches"
    inside = f"{part} ÷ {si_text(link.bytes_per_second, 'B/s')}"
    between = f"{link.nodes - 1}/{link.nodes} ÷ {si_text(link.shared_bytes_per_second, 'B/s')}"
    slower = f"max({inside}, {between})"
    if link.nodes == 1 or link.members == 1:
        slower = inside if link.nodes == 1 else between
    return f"{_factor(rounds)}{si_text(total, 'B')} × {slower}"


def _gather_over_nodes(total: float, link: NodeLink) -> float:
    """Return the seconds of the slower level of the tree: bytes × (D − 1) ÷ (D × bandwidth), D children."""
    inside = (link.members - 1) / link.members / link.bytes_per_second
    between = (link.nodes - 1) / link.nodes / link.shared_bytes_per_second
    return total * max(inside, between)


def _over_slices(operation: CollectiveRules, payload: float, link: SliceLink) -> ModelledSeconds:
    """Return the time of the slower level: the torus of each slice, or the network between them.

    Every device sends over DCN, at W bytes per second. With m devices in each of s slices, an all-gather of V
    bytes takes V·(s−1) ÷ (s·m·W), an all-reduce twice that, and an all-to-all of p bytes p·(s−1) ÷ (s·W).
    Source: the tree of the book's chapter 12, and chapter 5, whose all-reduce over many slices takes
    2·V ÷ (m·W). DCN has no latency in this model.
    """
    between = _between_slices(operation, payload, link)
    kept = _kept_inside(operation, payload, link)
    if kept is None:
        return between
    inside = _over_torus(operation, kept, link.inside)
    return max(inside, between, key=lambda time: time.seconds)


def _kept_inside(operation: CollectiveRules, payload: float, link: SliceLink) -> float | None:
    """Return the payload of the part inside of a slice; None if there is no such part."""
    if link.inside.size == 1 or operation.route not in ("ring", "all-to-all"):
        return None
    return payload / link.slices if operation.route == "all-to-all" else payload


def _between_slices(operation: CollectiveRules, payload: float, link: SliceLink) -> ModelledSeconds:
    """Return the time over the network between slices."""
    if operation.route == "ring":
        seconds = operation.rounds * _gather_between_slices(payload, link)
        factor = _factor(operation.rounds)
        share = "" if link.inside.size == 1 else f" ÷ {link.inside.size}"
    else:
        crossing = (link.slices - 1) / link.slices if operation.route == "all-to-all" else 1
        seconds = payload * crossing / link.bytes_per_second
        factor = share = ""
    part = f" × {link.slices - 1}/{link.slices}" if operation.route in ("ring", "all-to-all") else ""

    def formula() -> str:
        rate = si_text(link.bytes_per_second, "B/s")
        return f"{factor}{si_text(payload, 'B')}{share}{part} ÷ {rate} over DCN{_dense(operation)}"

    return ModelledSeconds(seconds, formula)


def _gather_between_slices(total: float, link: SliceLink) -> float:
    """Return the seconds until the devices of each slice together have all `total` bytes of an array."""
    return total * (link.slices - 1) / link.slices / link.inside.size / link.bytes_per_second


def _factor(rounds: int) -> str:
    return "" if rounds == 1 else f"{rounds} × "


def _dense(operation: CollectiveRules) -> str:
    return ", as if dense" if operation.payload == "first operand" else ""
