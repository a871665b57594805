"""Expected time of one collective by its bytes and devices. `links.collective_time` is its lower bound.

On TPUs a collective starts, its first data hops to the last chip, and all data crosses the links at a share
of their bandwidth; these add up. On GPUs NCCL chooses an algorithm and a protocol (`machines.nccl`).
"""

from dataclasses import dataclass, replace

from inspector.core.collectives import OPERATIONS
from inspector.machines import nccl
from inspector.machines.links import Link, NodeLink, SliceLink, TorusLink, levels
from inspector.machines.prediction.calibration import Constants

# Seconds in which the chips of a group begin and end a collective together: an all-gather on 2×2 chips of
# tpu7x takes 6.5 to 7.3 µs longer than its bytes at the full bandwidth, for 1 to 64 MB. Two hops of 1 µs are
# part of that. (AI-Hypercomputer/tpu-recipes at c8cfe2f, microbenchmarks/ironwood)
START_SECONDS = 4.8e-6


@dataclass(frozen=True)
class Cost:
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


def expected(op: str, payload_bytes: float, link: Link, constants: Constants) -> Cost:
    """Return the expected cost of one execution of a collective whose groups each use such a link."""
    if link.size == 1:
        return Cost(0.0, 0.0, 0.0)
    if isinstance(link, NodeLink):
        choice = nccl.fastest(OPERATIONS[op], payload_bytes, link)
        return Cost(choice.seconds, 0.0, choice.latency)
    inside, between = levels(op, payload_bytes, _without_hops(link))
    hops = levels(op, 0.0, link)[0]
    if isinstance(link, SliceLink):
        between = START_SECONDS + between / constants.dcn_efficiency
        if not hops:  # nothing of it is sent inside
            return Cost(0.0, between, START_SECONDS)
    latency = START_SECONDS + hops
    return Cost(latency + inside / constants.link_efficiency, between, latency)


def _without_hops(link: TorusLink | SliceLink) -> TorusLink | SliceLink:
    if isinstance(link, SliceLink):
        return replace(link, inside=_torus_without_hops(link.inside))
    return _torus_without_hops(link)


def _torus_without_hops(link: TorusLink) -> TorusLink:
    return replace(link, rings=tuple(replace(ring, hop_seconds=0.0) for ring in link.rings))
