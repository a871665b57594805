"""Torus coordinates of the devices of a mesh, from the Snapshot of a TPU slice."""

import math
from dataclasses import dataclass

import numpy as np

from inspector.core.snapshot import Mesh
from inspector.core.tpu_slices import slices_of

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
