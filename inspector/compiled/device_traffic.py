"""Model the bytes that each device sends to each other device in one run of a program.

Rings and chains visit the devices of a group in mesh order. The compiler or the network may choose
another order.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.records.collectives import OPERATIONS, Route
from inspector.records.snapshot import Collective, Mesh
from inspector.records.typed_json import LARGEST
from inspector.sharding.traffic import total_of_taken, wire_bytes_of_run

ASSUMED = "ring algorithm assumed"

# A table of all pairs of 100,000 devices would take 80 GB.
MAX_SIDE = 1024

# The least and the most bytes that leave a device; None if unknown.
Range = tuple[int | None, int | None]
_MOST_DEVICES = 1_000_000  # of more, no table is made

# Mesh axes, device groups, or the (source, target) pairs of a permute.
Group = tuple[str, ...] | tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class DeviceTraffic:
    """Bytes from each device to each other one.

    sent: int64, (sender, receiver) in mesh order. Of a mesh with more than `MAX_SIDE` devices, each
      row and column is `run` adjacent devices.
    counted: collectives that are included, with every branch of a conditional taken.
    left_out: collectives whose executions, groups or bytes are unknown.
    """

    sent: np.ndarray
    counted: int
    left_out: int
    run: int = 1


def device_traffic(collectives: Iterable[Collective], mesh: Mesh) -> DeviceTraffic:
    """Return the bytes between all devices of the mesh, summed over these collectives.

    A device sends `wire_bytes_per_device × executions` of each of its collectives. The last device of a
    chain, and a device that is not the source of a pair, send nothing.
    """
    # Collectives with the same route and groups are summed first, so that long programs stay fast.
    # The inner keys are wire bytes of one execution: they need not be a multiple of g − 1.
    summed: dict[tuple[Route, Group], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    counted = left_out = total = 0
    for collective in collectives:
        sent = _sent(collective)
        groups = _groups_of(collective, mesh) if sent else ()
        # No cell of the table can exceed the total, so none overflows.
        if sent is None or groups is None or total + sent > LARGEST:
            left_out += 1
            continue
        counted += 1
        total += sent
        if sent:
            summed[_route(collective.op), groups][collective.wire_bytes_per_device or 0] += (
                collective.executions or 0
            )
    run = -(-mesh.size // MAX_SIDE)
    side = -(-mesh.size // run)
    table = np.zeros((side, side), dtype=np.int64)

    def add(senders: np.ndarray, receivers: np.ndarray, size: int) -> None:
        np.add.at(table, (senders // run, receivers // run), size)

    for (route, groups), executions in summed.items():
        sent = sum(size * count for size, count in executions.items())
        if route == "pairs":
            pairs = np.array(groups, np.int64).reshape(-1, 2)
            senders, receivers = pairs[pairs[:, 0] != pairs[:, 1]].T
            add(senders, receivers, sent)
            continue
        for members in _members(groups, mesh):
            if route == "chain":
                add(members[:, :-1], members[:, 1:], sent)
            elif route == "ring":
                add(members, np.roll(members, -1, axis=1), sent)
            else:
                shares = _shares(executions, members.shape[1] - 1)
                if run > 1 and len(members) * side**2 < 200 * len(shares) * mesh.size:
                    # Counted per run of devices, because a loop over all distances is slower.
                    share, rest = divmod(sum(shares), len(shares))
                    count = np.zeros((len(members), side))
                    np.add.at(count, (np.arange(len(members))[:, None], members // run), 1)
                    pairs_per_cell = count.T @ count - np.diag(count.sum(axis=0))
                    table += share * pairs_per_cell.astype(np.int64)
                    shares = [rest]
                for distance, share in enumerate(shares, 1):
                    add(members, np.roll(members, -distance, axis=1), share)
    return DeviceTraffic(table, counted, left_out, run)


def sent_by_device(collectives: Iterable[Collective], devices: int) -> np.ndarray:
    """Return (devices,) float bytes that each device sends in one run, over its known collectives.

    A device that is not the source of a pair, or whose pair has itself as target, sends nothing. A device
    outside of the groups sends nothing.
    """
    by_branch: dict[tuple[str, ...], np.ndarray] = defaultdict(lambda: np.zeros(devices))
    for collective in collectives:
        sent = by_branch[collective.within]
        size = _sent(collective) or 0
        pairs, groups = collective.source_target_pairs, collective.device_groups
        senders: Iterable[int] | None = None
        if _route(collective.op) == "pairs" and pairs is not None:
            senders = {source for source, target in pairs if source != target}
        elif groups is not None:
            senders = {device for group in groups if len(group) > 1 for device in group}
        if senders is None:
            sent += size
        else:
            sent[[device for device in senders if device < devices]] += size
    return total_of_taken(by_branch.items(), np.zeros(devices), np.maximum.reduce)


def range_of_run(collectives: Sequence[Collective], devices: int | None) -> Range:
    """Return the least and the most bytes that leave a device in one run; None if unknown.

    They differ if devices are not sources of a collective-permute, or are their own targets.

    Args:
      devices: the number of devices; if None, both are those of a device that takes part in all.
    """
    most = wire_bytes_of_run(*collectives)
    if most is None or not isinstance(devices, int) or not 0 < devices <= _MOST_DEVICES:
        return most, most
    sent = sent_by_device(collectives, devices)
    return int(sent.min()), int(sent.max())


def _route(op: str) -> Route:
    operation = OPERATIONS.get(op)  # a file may name any operation
    return "ring" if operation is None else operation.route


def _sent(collective: Collective) -> int | None:
    """Return the bytes that a device sends in one run; None if unknown."""
    if collective.executions == 0 or collective.wire_bytes_per_device == 0:
        return 0
    if collective.executions is None or collective.wire_bytes_per_device is None:
        return None
    return collective.executions * collective.wire_bytes_per_device


def _groups_of(collective: Collective, mesh: Mesh) -> Group | None:
    """Return the pairs, mesh axes or device groups of a collective; None if unknown."""
    if _route(collective.op) == "pairs":
        pairs = collective.source_target_pairs
        return pairs if pairs is not None and _on_mesh(pairs, mesh) else None
    groups = collective.device_groups
    if groups is not None:
        return groups if _on_mesh(groups, mesh) else None
    if collective.mesh_axes is not None and set(collective.mesh_axes) <= set(mesh.axis_names):
        return collective.mesh_axes
    return None


def _on_mesh(groups: Sequence[Sequence[int]], mesh: Mesh) -> bool:
    devices = mesh.size
    return all(min(group) >= 0 and max(group) < devices for group in groups if group)


def _members(groups: Group, mesh: Mesh) -> list[np.ndarray]:
    """Return mesh positions as (groups, devices of a group), one array per group size above 1."""
    if not groups or isinstance(groups[0], str):
        inside = [n for n, name in enumerate(mesh.axis_names) if name in groups]
        # NumPy allows 64 axes, so axes of size 1 are left out.
        kept = [n for n, size in enumerate(mesh.shape) if size > 1]
        positions = np.arange(mesh.size).reshape([mesh.shape[n] for n in kept])
        order = [n for n in kept if n not in inside] + [n for n in kept if n in inside]
        length = math.prod(mesh.shape[n] for n in inside)
        members = positions.transpose([kept.index(n) for n in order]).reshape(-1, length)
        return [members] if length > 1 else []
    by_size: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for group in groups:
        by_size[len(group)].append(tuple(map(int, group)))
    return [np.array(same_size, np.int64) for size, same_size in by_size.items() if size > 1]


def _shares(executions: dict[int, int], partners: int) -> list[int]:
    """Return the bytes to each partner by distance; the nearest ones get the remainder."""
    shares = [0] * partners
    for size, count in executions.items():
        whole, rest = divmod(size, partners)
        for distance in range(partners):
            shares[distance] += count * (whole + (distance < rest))
    return shares
