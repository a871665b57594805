"""How groups of devices lie on a torus: along which of its axes, as rings or lines, over shared links or not.

Groups that fill a box of the torus run along each of its sides. Any other group is taken as a line in
group order, routed along x first, then y, then z, each by the shorter way, as the torus itself routes.
All groups talk at once, so that a link belongs to as many of them as run over it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from inspector.machines.torus_places import TorusPlaces

CORES = "cores"  # the axis inside a chip, where a chip is several devices


@dataclass(frozen=True)
class Stretch:
    """What a group has of one axis.

    count: the group's places along it. length: all places that the axis has.
    apart: links from one of the group's places to the next, at most.
    ring: it has the whole axis, whose ends are linked. sharing: groups on the busiest link.
    """

    axis: str
    count: int
    length: int
    apart: int
    ring: bool
    sharing: int

    @property
    def whole(self) -> bool:
        return self.count == self.length


@dataclass(frozen=True)
class Lie:
    """How a group of `members` lies: the sides of its box, or of none a line over several axes.

    line: where the group is no box, (links from one member to the next at most, groups on the busiest
      link); the stretches then only say where it is.
    """

    members: int
    stretches: tuple[Stretch, ...]
    line: tuple[int, int] | None = None


def lies(groups: np.ndarray, places: TorusPlaces, in_order: bool) -> tuple[Lie, ...]:
    """Every way in which these groups lie, mostly one.

    Args:
      groups: (groups, members) positions in the mesh, in the order of each group's members.
      in_order: a group along one axis is only a ring or a line of that axis if its members follow each
        other there.
    """
    topology, wraps, names = places.topology, places.wraps, tuple(places.axis_names)
    coordinates = places.coordinates
    if places.devices_per_chip > 1:
        coordinates = np.column_stack((coordinates, places.cores))
        topology, wraps = (*topology, places.devices_per_chip), (*wraps, False)
        names = (*names, CORES)
    members = coordinates[groups]
    moved = members - members.min(axis=1, keepdims=True)
    kinds: dict[bytes, list[int]] = {}
    for number, one in enumerate(moved):
        kinds.setdefault(one.tobytes(), []).append(number)
    links = _Links(topology, wraps)
    found = []
    for numbers in kinds.values():
        kind, these = moved[numbers[0]], members[numbers]
        values = [np.unique(kind[:, axis]) for axis in range(len(topology))]
        along = [axis for axis, own in enumerate(values) if len(own) > 1]
        box = math.prod(map(len, values)) == groups.shape[1]
        if box and in_order and len(along) == 1:
            (axis,) = along
            box = _in_order(kind[:, axis], topology[axis], wraps[axis])
        if box:
            apart = {axis: links.add_side(these, kind, axis, values[axis]) for axis in along}
            found.append((values, along, apart, None))
        else:
            found.append((values, along, {}, links.add(these[:, :-1], these[:, 1:])))
    # Groups that mirror each other are of two kinds, but lie alike.
    return tuple(
        dict.fromkeys(
            Lie(
                groups.shape[1],
                tuple(
                    Stretch(
                        names[axis],
                        len(values[axis]),
                        topology[axis],
                        apart.get(axis, 1),
                        wraps[axis] and len(values[axis]) == topology[axis],
                        links.busiest(axis),
                    )
                    for axis in along
                ),
                None if line is None else (line, max(map(links.busiest, range(len(topology))))),
            )
            for values, along, apart, line in found
        )
    )


def _in_order(values: np.ndarray, length: int, wraps: bool) -> bool:
    steps = np.diff(values)
    if bool((steps > 0).all() or (steps < 0).all()):
        return True
    if not wraps or len(values) != length:
        return False
    return bool((steps % length == 1).all() or (steps % length == length - 1).all())


class _Links:
    """How many groups run over each link: `_loads[axis]` has it at the link's lower end."""

    def __init__(self, topology: tuple[int, ...], wraps: tuple[bool, ...]) -> None:
        self._topology = topology
        self._wraps = wraps
        self._loads = [np.zeros(math.prod(topology), np.int64) for _ in topology]

    def busiest(self, axis: int) -> int:
        """Groups on the busiest link along the axis; 1 where none is used."""
        return max(int(self._loads[axis].max()), 1)

    def add(self, starts: np.ndarray, stops: np.ndarray) -> int:
        """Run from each start to its stop, (…, axes) coordinates; the links of the longest way."""
        place = starts.reshape(-1, len(self._topology)).copy()
        stops = stops.reshape(place.shape)
        links = np.zeros(len(place), np.int64)
        for axis, length in enumerate(self._topology):
            way = stops[:, axis] - place[:, axis]
            if self._wraps[axis]:
                way = (way + length // 2) % length - length // 2
            links += np.abs(way)
            for step in range(int(np.abs(way).max(initial=0))):
                on = np.abs(way) > step
                ends = place[on]
                ends[:, axis] += np.where(way[on] > 0, step, -step - 1)
                ends[:, axis] %= length
                self._count(axis, ends)
            place[:, axis] = stops[:, axis]
        return int(links.max(initial=0))

    def add_side(self, members: np.ndarray, kind: np.ndarray, axis: int, values: np.ndarray) -> int:
        """Run along one side of each group's box, from each of its values to the next."""
        place = np.searchsorted(values, kind[:, axis])
        inner = place < len(values) - 1
        starts = members[:, inner]
        stops = starts.copy()
        stops[:, :, axis] += np.diff(values)[place[inner]]
        return self.add(starts, stops)

    def _count(self, axis: int, ends: np.ndarray) -> None:
        at = np.ravel_multi_index(tuple(ends.T), self._topology)
        self._loads[axis] += np.bincount(at, minlength=len(self._loads[axis]))
