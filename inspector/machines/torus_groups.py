"""Shapes of device groups on a torus: along which axes, as rings or lines, over shared links or not.

Groups that fill a box of the torus run along each side of it. Any other group is modelled as a line in
group order, routed along x, then y, then z, each in the shorter direction, as the torus routes. All groups
communicate at once, so a link is shared by all groups that are routed over it.
"""

import math
from dataclasses import dataclass

import numpy as np

from inspector.records.snapshot import Mesh
from inspector.sharding.meshes import slices_of

AXIS_NAMES = "xyz"
_MAX_DEVICES_PER_CHIP = 8  # a limit for untrusted files, above that of any chip


@dataclass(frozen=True)
class TorusPlaces:
    """The place of each device of a mesh on a torus, in mesh order.

    topology: chips along x, y and, on some, z. wraps: whether the ends of each axis are linked.
    coordinates: of each device's chip in its slice, (devices, axes).
    cores: index of each device in its chip, (devices,).
    slices: the slice of each device, numbered from 0, (devices,). All slices have this topology.
    """

    topology: tuple[int, ...]
    wraps: tuple[bool, ...]
    coordinates: np.ndarray
    cores: np.ndarray
    slices: np.ndarray

    @property
    def slice_count(self) -> int:
        return int(self.slices.max()) + 1

    @property
    def devices_per_chip(self) -> int:
        return int(self.cores.max()) + 1

    @property
    def axis_names(self) -> str:
        return AXIS_NAMES[: len(self.topology)]


def places_of(mesh: Mesh) -> TorusPlaces | None:
    """Return the places from `coordinates`, `wraps`, `topology`, `cores` and `slice_index` of a mesh.

    Return None if they are missing or contradict each other: each device of each chip must occur once. By
    default the topology is the bounding box of the coordinates, a chip is one device, and there is one slice.
    """
    if mesh.coordinates is None or mesh.wraps is None or len(mesh.coordinates) != mesh.size:
        return None
    rank = len(mesh.wraps)
    if not 1 <= rank <= len(AXIS_NAMES) or {len(chip) for chip in mesh.coordinates} != {rank}:
        return None
    coordinates = np.array(mesh.coordinates, np.int64)
    topology = (coordinates.max(axis=0) + 1).tolist() if mesh.topology is None else mesh.topology
    cores = np.array(mesh.cores or (0,) * mesh.size, np.int64)
    if len(topology) != rank or not all(topology):
        return None
    if len(cores) != mesh.size or cores.max() >= _MAX_DEVICES_PER_CHIP:
        return None
    slices = slices_of(mesh)
    if slices is None:
        slices = np.zeros(mesh.size, np.int64)
    places = TorusPlaces(tuple(topology), mesh.wraps, coordinates, cores, slices)
    chips_of_all = math.prod(topology) * places.slice_count
    inside = (coordinates < np.array(topology)).all()
    if not inside or chips_of_all * places.devices_per_chip != mesh.size:
        return None
    chips = np.ravel_multi_index((slices, *coordinates.T), (places.slice_count, *places.topology))
    taken = chips * places.devices_per_chip + cores
    return places if len(np.unique(taken)) == mesh.size else None


CORES = "cores"  # the axis inside a chip that is several devices


@dataclass(frozen=True)
class AxisSpan:
    """The part of one torus axis that a group uses.

    count: places of the group along the axis. length: all places along the axis.
    stride: most links between adjacent places of the group.
    ring: the group has the whole axis and its ends are linked.
    sharing: groups on the busiest link.
    """

    axis: str
    count: int
    length: int
    stride: int
    ring: bool
    sharing: int


@dataclass(frozen=True)
class GroupShape:
    """The shape of a group of `members` devices: the sides of a box, or a line.

    line: (most links from one member to the next, groups on the busiest link) if the group is not a box.
      The spans then only locate it.
    """

    members: int
    spans: tuple[AxisSpan, ...]
    line: tuple[int, int] | None = None


def group_shapes(groups: np.ndarray, places: TorusPlaces, in_order: bool) -> tuple[GroupShape, ...]:
    """Return the distinct shapes of these groups; usually there is one.

    Args:
      groups: mesh positions as (groups, members), in the order of each group's members. All members of a
        group are in the same slice.
      in_order: require members along one axis to be adjacent in group order to form a ring or line.
    """
    topology, wraps, names = places.topology, places.wraps, tuple(places.axis_names)
    coordinates = places.coordinates
    if places.devices_per_chip > 1:
        coordinates = np.column_stack((coordinates, places.cores))
        topology, wraps = (*topology, places.devices_per_chip), (*wraps, False)
        names = (*names, CORES)
    slices = places.slices[groups[:, 0]]
    # Slices do not share links. Most have the same groups.
    by_slice = (coordinates[groups[slices == number]] for number in np.unique(slices))
    distinct = {members.tobytes(): members for members in by_slice}
    return tuple(
        dict.fromkeys(
            shape
            for members in distinct.values()
            for shape in _shapes(members, topology, wraps, names, in_order)
        )
    )


def _shapes(
    members: np.ndarray,
    topology: tuple[int, ...],
    wraps: tuple[bool, ...],
    names: tuple[str, ...],
    in_order: bool,
) -> tuple[GroupShape, ...]:
    """Return the distinct shapes of the groups of one slice, coordinates as (groups, members, axes)."""
    # Groups that differ only by a translation have the same offsets.
    offsets = members - members.min(axis=1, keepdims=True)
    translated: dict[bytes, list[int]] = {}
    for number, own in enumerate(offsets):
        translated.setdefault(own.tobytes(), []).append(number)
    links = _Links(topology, wraps)
    # Per distinct group: values on each axis, axes with several values, stride per axis, links of a line.
    routed: list[tuple[list[np.ndarray], list[int], dict[int, int], int | None]] = []
    for numbers in translated.values():
        first, same = offsets[numbers[0]], members[numbers]
        values = [np.unique(first[:, axis]) for axis in range(len(topology))]
        along = [axis for axis, own in enumerate(values) if len(own) > 1]
        box = math.prod(map(len, values)) == members.shape[1]
        if box and in_order and len(along) == 1:
            (axis,) = along
            box = _is_in_order(first[:, axis], topology[axis], wraps[axis])
        if box:
            strides = {axis: links.route_side(same, first, axis, values[axis]) for axis in along}
            routed.append((values, along, strides, None))
        else:
            routed.append((values, along, {}, links.route(same[:, :-1], same[:, 1:])))
    # Mirrored groups have different offsets but the same shape.
    return tuple(
        dict.fromkeys(
            GroupShape(
                members.shape[1],
                tuple(
                    AxisSpan(
                        names[axis],
                        len(values[axis]),
                        topology[axis],
                        strides.get(axis, 1),
                        wraps[axis] and len(values[axis]) == topology[axis],
                        links.busiest(axis),
                    )
                    for axis in along
                ),
                None if line is None else (line, max(map(links.busiest, range(len(topology))))),
            )
            for values, along, strides, line in routed
        )
    )


def _is_in_order(values: np.ndarray, length: int, wraps: bool) -> bool:
    steps = np.diff(values)
    if bool((steps > 0).all() or (steps < 0).all()):
        return True
    if not wraps or len(values) != length:
        return False
    return bool((steps % length == 1).all() or (steps % length == length - 1).all())


class _Links:
    """Count of groups on each link. `_loads[axis]` is indexed by the lower end of the link."""

    def __init__(self, topology: tuple[int, ...], wraps: tuple[bool, ...]) -> None:
        self._topology = topology
        self._wraps = wraps
        self._loads = [np.zeros(math.prod(topology), np.int64) for _ in topology]

    def busiest(self, axis: int) -> int:
        """Return the groups on the busiest link along the axis, at least 1."""
        return max(int(self._loads[axis].max()), 1)

    def route(self, starts: np.ndarray, stops: np.ndarray) -> int:
        """Route from each start to its stop, (…, axes) coordinates; return the links of the longest route."""
        place = starts.reshape(-1, len(self._topology)).copy()
        stops = stops.reshape(place.shape)
        links = np.zeros(len(place), np.int64)
        for axis, length in enumerate(self._topology):
            distance = stops[:, axis] - place[:, axis]
            if self._wraps[axis]:
                distance = (distance + length // 2) % length - length // 2
            links += np.abs(distance)
            for step in range(int(np.abs(distance).max(initial=0))):
                moving = np.abs(distance) > step
                ends = place[moving]
                ends[:, axis] += np.where(distance[moving] > 0, step, -step - 1)
                ends[:, axis] %= length
                at = np.ravel_multi_index(tuple(ends.T), self._topology)
                self._loads[axis] += np.bincount(at, minlength=len(self._loads[axis]))
            place[:, axis] = stops[:, axis]
        return int(links.max(initial=0))

    def route_side(self, members: np.ndarray, offsets: np.ndarray, axis: int, values: np.ndarray) -> int:
        """Route along one side of each group's box; return the links of the longest step."""
        place = np.searchsorted(values, offsets[:, axis])
        inner = place < len(values) - 1
        starts = members[:, inner]
        stops = starts.copy()
        stops[:, :, axis] += np.diff(values)[place[inner]]
        return self.route(starts, stops)
