"""Reference for tests: meshes on tori, with links counted hop by hop."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from inspector.records.snapshot import Mesh, MeshAxis

Chip = tuple[int, ...]


def on_torus(
    topology: Sequence[int],
    wraps: Sequence[bool],
    sizes: Sequence[int],
    chips: Sequence[Chip] | None = None,
    cores: int = 1,
    device_order: str | None = "torus",
) -> Mesh:
    """Return a mesh over these chips in this order; by default the last torus axis varies fastest."""
    chips = chips or list(itertools.product(*map(range, topology)))
    assert math.prod(sizes) == len(chips) * cores
    names = ("data", "model", "seq", "expert", "stage")
    hosts = sorted({host_of(chip) for chip in chips})
    return Mesh(
        tuple(MeshAxis(name, size) for name, size in zip(names, sizes, strict=False)),
        tuple(range(len(chips) * cores)),
        tuple(hosts.index(host_of(chip)) for chip in chips for _ in range(cores)),
        "TPU",
        device_order=device_order,
        split=False,
        topology=tuple(topology),
        wraps=tuple(wraps),
        coordinates=tuple(chip for chip in chips for _ in range(cores)),
        cores=tuple(range(cores)) * len(chips),
    )


def on_slices(count: int, mesh: Mesh, sizes: Sequence[int]) -> Mesh:
    """Return a mesh over `count` slices in order, each with the devices of `one` in its order."""
    axes = zip(("data", "model", "seq"), sizes, strict=False)
    return dataclasses.replace(
        mesh,
        axes=tuple(MeshAxis(name, size) for name, size in axes),
        devices=tuple(range(count * mesh.size)),
        processes=None,
        coordinates=mesh.coordinates * count,
        cores=mesh.cores * count,
        slice_index=tuple(number for number in range(count) for _ in range(mesh.size)),
    )


def host_of(chip: Chip) -> Chip:
    """Return the coordinates of the chip's host, which has 2 × 2 chips in one plane."""
    return (*(place // 2 for place in chip[:2]), *chip[2:])


def by_hosts(topology: Sequence[int]) -> list[Chip]:
    """Return chips in the order of `jax.devices()`: hosts of 2 × 2, x fastest."""
    lengths = [*topology, 1][:3]
    return [
        (2 * host_x + x, 2 * host_y + y, z)[: len(topology)]
        for z in range(lengths[2])
        for host_y in range(lengths[1] // 2)
        for host_x in range(lengths[0] // 2)
        for y in range(2)
        for x in range(2)
    ]


def groups(mesh: Mesh, axes: Iterable[str]) -> list[list[Chip]]:
    """Return the chips of each group along these axes."""
    axes = set(axes)
    found: dict[tuple[int, ...], list[Chip]] = {}
    everywhere = itertools.product(*(range(axis.size) for axis in mesh.axes))
    for place, chip in zip(everywhere, mesh.coordinates, strict=True):
        key = tuple(index for index, axis in zip(place, mesh.axes, strict=True) if axis.name not in axes)
        found.setdefault(key, []).append(tuple(chip))
    return list(found.values())


def way(mesh: Mesh, start: Chip, stop: Chip) -> list[tuple[Chip, Chip]]:
    """Return the links of a route: along x, then y, then z, each in the shorter direction."""
    here, links = list(start), []
    for axis, length in enumerate(mesh.topology):
        while here[axis] != stop[axis]:
            ahead = stop[axis] - here[axis]
            if mesh.wraps[axis]:
                ahead %= length
                forward = ahead < length - ahead
            else:
                forward = ahead > 0
            after = list(here)
            after[axis] = (here[axis] + (1 if forward else -1)) % length
            links.append(tuple(sorted((tuple(here), tuple(after)))))
            here = after
    return links


def is_ring(mesh: Mesh, group: Sequence[Chip]) -> bool:
    """Return whether all chips are on one axis, each one hop from the next, cyclically."""
    moving = [axis for axis, values in enumerate(zip(*group, strict=True)) if len(set(values)) > 1]
    around = itertools.pairwise([*group, group[0]])
    return len(moving) == 1 and len(group) > 2 and all(len(way(mesh, *pair)) == 1 for pair in around)


def side_by_side(mesh: Mesh, every: Sequence[Sequence[Chip]], axis: int) -> tuple[int, int]:
    """Return the most links between adjacent chips along an axis, and the groups on the busiest link."""
    busy: Counter[tuple[Chip, Chip]] = Counter()
    longest = 0
    for group in every:
        lines: dict[Chip, list[Chip]] = {}
        for chip in sorted(group):
            lines.setdefault((*chip[:axis], *chip[axis + 1 :]), []).append(chip)
        for line in lines.values():
            for pair in itertools.pairwise(line):
                links = way(mesh, *pair)
                longest = max(longest, len(links))
                busy.update(set(links))
    return longest, max(busy.values())
