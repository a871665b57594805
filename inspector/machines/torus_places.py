"""Where in a torus each device of a mesh stands, as the Snapshot of a TPU slice has it in `Mesh.extra`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from inspector.core.snapshot import Mesh

AXIS_NAMES = "xyz"
_MOST_DEVICES_PER_CHIP = 8  # more than any chip shows of itself; a file may say anything


@dataclass(frozen=True)
class TorusPlaces:
    """The places of a mesh's devices, in mesh order, on all chips of a torus.

    topology: chips along x, y and z, as many of them as there are. wraps: for each whether its ends are
      linked.
    coordinates: (devices, axes) of each device's chip. cores: (devices,) which of its chip's devices it is.
    """

    topology: tuple[int, ...]
    wraps: tuple[bool, ...]
    coordinates: np.ndarray
    cores: np.ndarray

    @property
    def devices_per_chip(self) -> int:
        return int(self.cores.max()) + 1

    @property
    def axis_names(self) -> str:
        return AXIS_NAMES[: len(self.topology)]


def places_of(mesh: Mesh) -> TorusPlaces | None:
    """What `coordinates`, `wraps`, `topology` and `cores` in the mesh's `extra` say.

    None where they say nothing, or what cannot be: every device of every chip must be there once.
    Without `topology` it is what the coordinates reach to, without `cores` a chip is one device.
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
    if cores is None or cores.shape != (mesh.size,) or cores.max() >= _MOST_DEVICES_PER_CHIP:
        return None
    places = TorusPlaces(tuple(topology.tolist()), tuple(wraps), coordinates, cores)
    inside = min(coordinates.min(), cores.min()) >= 0 and (coordinates < topology).all()
    if not inside or math.prod(places.topology) * places.devices_per_chip != mesh.size:
        return None
    chips = np.ravel_multi_index(tuple(coordinates.T), places.topology)
    taken = chips * places.devices_per_chip + cores
    return places if len(np.unique(taken)) == mesh.size else None


def _integers(value: Any, dimensions: int) -> np.ndarray | None:
    """A list, or a list of equally long lists, of whole numbers; None if it is anything else."""
    if not isinstance(value, (list, tuple)) or not value:
        return None
    try:
        found = np.array(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if found.ndim != dimensions or found.dtype.kind != "i" or not found.size:
        return None
    return found.astype(np.int64)
