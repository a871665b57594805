"""Torus coordinates of the devices of a mesh, from `Mesh.extra` in the Snapshot of a TPU slice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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
    """Return the places from `coordinates`, `wraps`, `topology`, `cores` and `slice_index` in `Mesh.extra`.

    Return None if they are missing or invalid: each device of each chip must occur once. By default the
    topology is the bounding box of the coordinates, a chip is one device, and there is one slice.
    """
    coordinates = _integers(mesh.extra.get("coordinates"), 2)
    wraps = mesh.extra.get("wraps")
    if coordinates is None or coordinates.shape[0] != mesh.size:
        return None
    rank = coordinates.shape[1]
    if not 1 <= rank <= len(AXIS_NAMES) or not isinstance(wraps, (list, tuple)):
        return None
    if len(wraps) != rank or not all(isinstance(one, bool) for one in wraps):
        return None
    topology = _integers(mesh.extra.get("topology", (coordinates.max(axis=0) + 1).tolist()), 1)
    cores = _integers(mesh.extra.get("cores", [0] * mesh.size), 1)
    if topology is None or topology.shape != (rank,) or topology.min() < 1:
        return None
    if cores is None or cores.shape != (mesh.size,) or cores.max() >= _MAX_DEVICES_PER_CHIP:
        return None
    slices = slices_of(mesh)
    if slices is None:
        slices = np.zeros(mesh.size, np.int64)
    places = TorusPlaces(tuple(topology.tolist()), tuple(wraps), coordinates, cores, slices)
    inside = min(coordinates.min(), cores.min()) >= 0 and (coordinates < topology).all()
    chips_of_all = math.prod(places.topology) * places.slice_count
    if not inside or chips_of_all * places.devices_per_chip != mesh.size:
        return None
    chips = np.ravel_multi_index((slices, *coordinates.T), (places.slice_count, *places.topology))
    taken = chips * places.devices_per_chip + cores
    return places if len(np.unique(taken)) == mesh.size else None


def _integers(value: Any, dimensions: int) -> np.ndarray | None:
    """Return a list, or a list of lists, of integers as an array; None for anything else."""
    if not isinstance(value, (list, tuple)) or not value:
        return None
    try:
        array = np.array(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if array.ndim != dimensions or array.dtype.kind != "i" or not array.size:
        return None
    return array.astype(np.int64)
