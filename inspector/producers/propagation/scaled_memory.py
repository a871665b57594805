"""The memory of a partitioned program on meshes that differ only in the sizes of their axes.

When a value is in use does not depend on the sizes of the mesh axes, and its bytes on a device are its global
bytes / the sizes of the axes that shard it. So there is one curve of global bytes for each set of mesh axes,
and the memory of another mesh is their sum, each divided by the sizes of its axes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.compiled.hlo.live_values import Buffer, LiveValues
from inspector.compiled.memory_use import counted
from inspector.core.snapshot import Mesh
from inspector.core.typed_json import LARGEST
from inspector.producers.propagation.shardings import Axes


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


def scaled_memory(
    live: LiveValues,
    other: LiveValues,
    mesh: Mesh,
    axes_of: Callable[[int, int], Axes | None],
) -> ScaledMemory | None:
    """Return the memory of a program as curves by mesh axes.

    A value whose axes are unknown keeps its bytes on every mesh. Return None if nothing is in memory, or more
    than a device can have.

    Args:
      other: the buffers of the program on another mesh.
      axes_of: returns the axes that shard a buffer from its bytes on both meshes; None if unknown.
    """
    buffers, count = counted(live), len(live.instructions)
    changes: dict[Axes, np.ndarray] = defaultdict(lambda: np.zeros(count + 1))
    if not buffers or sum(buffer.bytes for buffer in buffers) > LARGEST:
        return None
    elsewhere = {name: buffer.bytes for name, buffer in _named(counted(other))}
    for name, buffer in _named(buffers):
        axes = axes_of(buffer.bytes, elsewhere.get(name, 0)) or frozenset()
        everywhere = buffer.bytes * math.prod(mesh.sizes[axis] for axis in axes)
        first, last = (0, count - 1) if buffer.whole_program else (buffer.first, buffer.last)
        changes[axes][first] += everywhere
        changes[axes][last + 1] -= everywhere
    curves = np.cumsum(np.stack([*changes.values()]), axis=1)[:, :-1]
    return ScaledMemory(tuple(changes), curves)


def _named(buffers: Sequence[Buffer]) -> Iterator[tuple[tuple[str, int], Buffer]]:
    """Yield each buffer with the name of its value, and its place among those of a tuple."""
    seen: Counter[str] = Counter()
    for buffer in buffers:
        yield (buffer.value, seen[buffer.value]), buffer
        seen[buffer.value] += 1
