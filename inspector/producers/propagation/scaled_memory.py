"""The memory of a propagated program on meshes that differ only in the sizes of their axes.

When a value is in use does not depend on the sizes of the mesh axes, and its bytes on a device are its global
bytes / the sizes of the axes that shard it. So there is one curve of global bytes for each set of mesh axes,
and the memory of another mesh is their sum, each divided by the sizes of its axes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inspector.compiled.hlo.live_values import LiveValues
from inspector.compiled.memory_use import counted
from inspector.core.snapshot import Mesh
from inspector.core.typed_json import LARGEST
from inspector.producers.propagation.device_program import DeviceProgram
from inspector.producers.propagation.shardings import Axes, sharding_of, whole_axes


@dataclass(frozen=True, eq=False)
class ScaledMemory:
    """The memory in use by the values with the same axes.

    Attributes:
      axes: the mesh axes that shard the values of each curve.
      curves: global bytes by curve and instruction, shape (curves, instructions).
    """

    axes: tuple[Axes, ...]
    curves: np.ndarray

    def peak(self, sizes: Mapping[str, int]) -> int:
        """Return the most bytes in use on one device of a mesh with these sizes of the axes."""
        ways = [math.prod(sizes[axis] for axis in axes) for axes in self.axes]
        return round(float(np.max(1 / np.array(ways) @ self.curves)))


def scaled_memory(live: LiveValues, written: DeviceProgram, mesh: Mesh) -> ScaledMemory | None:
    """Return the memory of a program as curves by mesh axes.

    A value that is sharded over a part of a mesh axis keeps its bytes on every mesh. Return None if nothing
    is in memory, or more than a device can have.
    """
    changes: dict[Axes, np.ndarray] = defaultdict(lambda: np.zeros(count + 1))
    buffers, count = counted(live), len(live.instructions)
    if not buffers or sum(one.bytes for one in buffers) > LARGEST:
        return None
    for one in buffers:
        value = written.values.get(one.value)
        axes = whole_axes(None if value is None else sharding_of(value)) or frozenset()
        everywhere = one.bytes * math.prod(mesh.sizes[axis] for axis in axes)
        first, last = (0, count - 1) if one.whole_program else (one.first, one.last)
        changes[axes][first] += everywhere
        changes[axes][last + 1] -= everywhere
    curves = np.cumsum(np.stack([*changes.values()]), axis=1)[:, :-1]
    return ScaledMemory(tuple(changes), curves)
