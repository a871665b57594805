"""How many bytes each device sends to each other device in one run of a program. Modelled, not measured.

All-reduce, all-gather, reduce-scatter, collective-broadcast and collective-reduce go around a ring of the
group's devices in mesh order, each sending to the next one; all-to-alls go from everybody in the group to
everybody else, and a collective-permute from each source to its target. What a compiler or a network does
may be otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.core.record import LARGEST
from inspector.core.snapshot import Collective, Mesh

ASSUMED = "ring algorithm assumed"

_TO_EVERYBODY = frozenset({"all-to-all", "ragged-all-to-all"})


@dataclass(frozen=True)
class DeviceTraffic:
    """Bytes from each device (rows) to each device (columns), in mesh order, (devices, devices) int64.

    `counted` collectives are in it, with every branch taken; `left_out` are not, because how often they
    run, among which devices or how much they move is not known.
    """

    sent: np.ndarray
    counted: int
    left_out: int


def device_traffic(collectives: Iterable[Collective], mesh: Mesh) -> DeviceTraffic:
    """What all of these collectives send in one run of their program.

    Each device sends `wire_bytes_per_device × executions` of every collective that it is a part of, but
    the last of a broadcast's group and the devices that are no source of a permute send nothing.
    """
    # What goes the same way is added up first, so that long programs cost no more than short ones.
    rings: dict[tuple, int] = {}
    pairwise: dict[tuple, dict[int, int]] = {}
    moves: dict[tuple[tuple[int, int], ...], int] = {}
    counted = left_out = total = 0
    for one in collectives:
        sent = _sent(one)
        way = _way(one, mesh) if sent else ()
        # A cell of the table gets at most all bytes, so that none can overflow.
        if sent is None or way is None or total + sent > LARGEST:
            left_out += 1
            continue
        counted += 1
        total += sent
        if not sent:
            continue
        if one.op == "collective-permute":
            moves[way] = moves.get(way, 0) + sent
        elif one.op in _TO_EVERYBODY:
            # Each execution's bytes need not divide by the partners.
            each = one.wire_bytes_per_device or 0
            times = pairwise.setdefault(way, {})
            times[each] = times.get(each, 0) + (one.executions or 0)
        else:
            closed = one.op not in ("collective-broadcast", "collective-reduce")
            rings[way, closed] = rings.get((way, closed), 0) + sent
    table = np.zeros((mesh.size, mesh.size), dtype=np.int64)
    for (way, closed), sent in rings.items():
        for groups in _groups(way, mesh):
            sources = groups if closed else groups[:, :-1]
            targets = np.roll(groups, -1, axis=1) if closed else groups[:, 1:]
            np.add.at(table, (sources, targets), sent)
    for way, times in pairwise.items():
        for groups in _groups(way, mesh):
            for distance, sent in enumerate(_shares(times, groups.shape[1] - 1), 1):
                np.add.at(table, (groups, np.roll(groups, -distance, axis=1)), sent)
    for pairs, sent in moves.items():
        for source, target in pairs:
            if source != target:
                table[source, target] += sent
    return DeviceTraffic(table, counted, left_out)


def _sent(one: Collective) -> int | None:
    """Bytes that a device sends in one run of the program; None where that is not known."""
    if one.executions == 0 or one.wire_bytes_per_device == 0:
        return 0
    if one.executions is None or one.wire_bytes_per_device is None:
        return None
    return one.executions * one.wire_bytes_per_device


def _way(one: Collective, mesh: Mesh) -> tuple | None:
    """What tells who sends to whom: pairs, mesh axes or groups; None where it is not known."""
    if one.op == "collective-permute":
        pairs = one.source_target_pairs
        known = pairs is not None and _on_mesh(pairs, mesh)
        return pairs if known else None
    if one.mesh_axes is not None:
        return one.mesh_axes if set(one.mesh_axes) <= set(mesh.axis_names) else None
    groups = one.device_groups
    return groups if groups is not None and _on_mesh(groups, mesh) else None


def _on_mesh(groups: Sequence[Sequence[int]], mesh: Mesh) -> bool:
    return all(0 <= position < mesh.size for group in groups for position in group)


def _groups(way: tuple, mesh: Mesh) -> list[np.ndarray]:
    """Positions on the mesh, (groups, devices in a group) for each size of a group above 1."""
    if not way or isinstance(way[0], str):
        inside = [n for n, name in enumerate(mesh.axis_names) if name in way]
        # Without the axes of size 1: NumPy takes at most 64 axes.
        kept = [n for n, size in enumerate(mesh.shape) if size > 1]
        positions = np.arange(mesh.size).reshape([mesh.shape[n] for n in kept])
        order = [n for n in kept if n not in inside] + [n for n in kept if n in inside]
        length = math.prod(mesh.shape[n] for n in inside)
        together = positions.transpose([kept.index(n) for n in order]).reshape(-1, length)
        return [together] if length > 1 else []
    by_size: dict[int, list[tuple[int, ...]]] = {}
    for group in way:
        by_size.setdefault(len(group), []).append(tuple(group))
    return [np.array(groups, np.int64) for size, groups in by_size.items() if size > 1]


def _shares(times: dict[int, int], partners: int) -> list[int]:
    """Bytes to each partner, by how far on in the group it is; the first get what does not divide."""
    shares = [0] * partners
    for each, executions in times.items():
        whole, rest = divmod(each, partners)
        for distance in range(partners):
            shares[distance] += executions * (whole + (distance < rest))
    return shares
