"""Programs of meshes with more devices than can be emulated.

XLA partitions the program on two smaller meshes that differ in the sizes of some axes. A dimension that is
divided by the ratio of an axis is sharded over it, so its size on the large mesh follows. Both programs must
have the same instructions.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inspector.compiled.hlo.module import Computation, Instruction, Module
from inspector.core.collectives import OPERATIONS
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Collective, Mesh
from inspector.producers.propagation.xla_partitioner import MOST_DEVICES

_MOST_PAIRS = 3
_ARRAY = re.compile(r"(\w+)\[([\d,]+)\]")


@dataclass(frozen=True)
class SmallerMeshes:
    """Two meshes for which a program is partitioned in the place of a large one.

    Attributes:
      first: the mesh whose program is scaled.
      second: the mesh with which it is compared.
      growth: how much larger each axis of the large mesh is than that of the first.
      powers: the power of two by which each of these axes of the second mesh is larger. No two have the
        same sum.
    """

    first: Mesh
    second: Mesh
    growth: Mapping[str, int]
    powers: Mapping[str, int]


def smaller(mesh: Mesh) -> tuple[SmallerMeshes, ...]:
    """Return pairs of meshes with the same axes that can be emulated; none if the mesh itself can be.

    The first pair has fewer devices along the longest axis, another one along another axis: XLA's partitioner
    compares costs, so that one pair can have two programs and another one not.

    Raises:
      InvalidInput: the sizes of the axes have too few factors of two.
    """
    if mesh.size <= MOST_DEVICES:
        return ()
    longest = sorted(mesh.sizes, key=lambda name: -mesh.sizes[name])
    found = [pair for first in longest if (pair := _halved(mesh, first)) is not None]
    if not found:
        raise InvalidInput(
            f"the mesh has {mesh.size:,} devices, of which at most {MOST_DEVICES:,} are emulated, and its "
            "axes cannot be halved"
        )
    return tuple(found[:_MOST_PAIRS])


def _halved(mesh: Mesh, preferred: str) -> SmallerMeshes | None:
    """Return a pair of meshes with fewer devices along one axis, and along others if this is not enough."""
    sizes = dict(mesh.sizes)
    powers: dict[str, int] = {}
    while math.prod(sizes.values()) * 2 ** sum(powers.values()) > MOST_DEVICES:
        halved = [name for name, size in sizes.items() if size % 2 == 0 and size > 2]
        if not halved:
            return None
        name = preferred if preferred in halved else max(halved, key=lambda name: sizes[name])
        sizes[name] //= 2
        powers.setdefault(name, 2 ** len(powers))
    growth = {name: mesh.sizes[name] // sizes[name] for name in powers}
    larger = {name: size * 2 ** powers.get(name, 0) for name, size in sizes.items()}
    return SmallerMeshes(_mesh(mesh, sizes), _mesh(mesh, larger), growth, powers)


def on_large_mesh(first: Module, second: Module, meshes: SmallerMeshes) -> Module:
    """Return the program of the first mesh with the shapes of the large one.

    Raises:
      InvalidInput: the two programs are not alike, or a dimension is not divided evenly.
    """
    names = [one.name for one in first.computations], [one.name for one in second.computations]
    if len(names[0]) != len(names[1]):
        raise InvalidInput(_NOT_ALIKE)
    computations = []
    for one, two in zip(first.computations, second.computations, strict=True):
        if [i.opcode for i in one.instructions] != [i.opcode for i in two.instructions]:
            raise InvalidInput(_NOT_ALIKE)
        instructions = tuple(
            _scaled(before, after, meshes)
            for before, after in zip(one.instructions, two.instructions, strict=True)
        )
        computations.append(Computation(one.name, one.entry, instructions, one.complete))
    return replace(first, computations=tuple(computations))


def on_axes_of(collective: Collective, mesh: Mesh) -> Collective:
    """Return a collective of a smaller mesh with the groups of the large mesh with the same axes."""
    axes, payload = collective.mesh_axes, collective.payload_bytes
    if axes is None or payload is None:
        return collective
    group = mesh.ways(axes)
    if OPERATIONS[collective.op].route == "pairs":
        return replace(collective, source_target_pairs=None)
    return replace(
        collective,
        group_size=group,
        groups=mesh.size // group,
        wire_bytes_per_device=OPERATIONS[collective.op].wire_bytes(payload, group),
    )


_NOT_ALIKE = (
    f"the mesh has more than {MOST_DEVICES:,} devices, and its program cannot be scaled, because XLA "
    "partitions it otherwise for each size"
)


def _mesh(mesh: Mesh, sizes: Mapping[str, int]) -> Mesh:
    axes = tuple(replace(axis, size=sizes[axis.name]) for axis in mesh.axes)
    return Mesh(axes, tuple(range(math.prod(sizes.values()))), None, mesh.device_kind)


def _scaled(first: Instruction, second: Instruction, meshes: SmallerMeshes) -> Instruction:
    if first.shape_text is None or first.shape_text == second.shape_text:
        return first
    others = iter(_ARRAY.findall(second.shape_text or ""))

    def array(found: re.Match[str]) -> str:
        sizes = [int(size) for size in found[2].split(",")]
        other = next(others, ("", ""))[1].split(",")
        if len(other) != len(sizes):
            raise InvalidInput(_NOT_ALIKE)
        large = (_size(a, int(b), meshes) for a, b in zip(sizes, other, strict=True))
        return f"{found[1]}[{','.join(map(str, large))}]"

    return first._replace(shape_text=_ARRAY.sub(array, first.shape_text))


def _size(first: int, second: int, meshes: SmallerMeshes) -> int:
    """Return the size of a dimension on a device of the large mesh."""
    if first == second:
        return first
    smaller, larger = sorted((first, second))
    power = math.log2(larger / smaller) if smaller else 0.5
    axes = _axes(power, list(meshes.powers.items()))
    if axes is None:
        raise InvalidInput(_NOT_ALIKE)
    growth = math.prod(meshes.growth[axis] for axis in axes)
    # A table with a row for each device grows, and all else shrinks.
    return first * growth if second > first else -(-first // growth)


def _axes(power: float, powers: Sequence[tuple[str, int]]) -> tuple[str, ...] | None:
    for count in range(1, len(powers) + 1):
        for chosen in itertools.combinations(powers, count):
            if sum(number for _, number in chosen) == power:
                return tuple(name for name, _ in chosen)
    return None
