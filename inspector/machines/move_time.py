"""Model the least time of moves between devices over the links of a chip."""

from collections import Counter

from inspector.core.snapshot import Reshard
from inspector.machines.hardware import Chip, Torus


def least_seconds(reshard: Reshard, chip: Chip) -> float | None:
    """Return the least seconds of one execution; None if the bytes between devices are unknown.

    It is the time in which a device can receive its bytes over all of its links at once, or all sources can
    send theirs, with equal shares. The places of the devices are not known for several meshes, so
    hops and shared links are not counted, and neither is the data center network.
    """
    if reshard.routes is None:
        return None
    received: Counter[int] = Counter()
    for _, target, size in reshard.routes:
        received[target] += size
    # Any replica can send: which one does is not known.
    share = received.total() / max(len(reshard.source_devices), 1)
    return max(*received.values(), share, 0) / link_bytes_per_second(chip)


def link_bytes_per_second(chip: Chip) -> float:
    """Return the bytes that one device can send per second over all of its links in one direction each.

    A TPU chip has two links on each axis of the torus. Its devices share them, but one alone can use all.
    """
    network = chip.network
    if isinstance(network, Torus):
        return 2 * network.axes * network.bytes_per_second
    return network.bytes_per_second
