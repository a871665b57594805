"""Programs of meshes with more devices than can be emulated.

XLA partitions the program on two smaller meshes that differ in the sizes of some axes. A dimension that is
divided by the ratio of an axis is sharded over it, so its size on the large mesh follows. The partitioner
compares costs, so that a few instructions can be in one of the programs only; those keep their sizes.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from inspector.hlo.module import Computation, Instruction, Module
from inspector.records.collectives import OPERATIONS
from inspector.records.snapshot import Collective, Mesh
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir.xla_partitioner import MOST_DEVICES

_MOST_PAIRS = 3
_ARRAY = re.compile(r"(\w+)\[([\d,]+)\]")


@dataclass(frozen=True)
class SmallerMeshes:
    """Two meshes for which a program is partitioned in the place of a large one.

    Attributes:
      first: the mesh whose program is scaled.
      second: the mesh with which it is compared.
      growth: size of each axis of the large mesh / size of that of the first.
      powers: the power of two by which each of these axes of the second mesh is smaller: 1, 2, 4 and so on,
        so that each sum is of one set of axes.
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
    pairs = [pair for first in longest if (pair := _halved(mesh, first)) is not None]
    if not pairs:
        raise InvalidInput(
            f"the mesh has {mesh.size:,} devices, of which at most {MOST_DEVICES:,} are emulated, and its "
            "axes cannot be halved"
        )
    return tuple(pairs[:_MOST_PAIRS])


def _halved(mesh: Mesh, preferred: str) -> SmallerMeshes | None:
    """Return a pair of meshes with fewer devices along one axis, and along others if this is not enough."""
    sizes = dict(mesh.sizes)
    powers: dict[str, int] = {}  # of the first mesh, compared with the second
    while math.prod(sizes.values()) * 2 ** sum(powers.values()) > MOST_DEVICES:
        halved = [name for name, size in sizes.items() if size % 2 == 0 and size > 2]
        if not halved:
            return None
        name = preferred if preferred in halved else max(halved, key=lambda name: sizes[name])
        sizes[name] //= 2
        powers.setdefault(name, 2 ** len(powers))
    second = _with_sizes(mesh, sizes)
    first = _with_sizes(mesh, {name: size * 2 ** powers.get(name, 0) for name, size in sizes.items()})
    growth = {name: mesh.sizes[name] // first.sizes[name] for name in powers}
    return SmallerMeshes(first, second, growth, powers)


def _with_sizes(mesh: Mesh, sizes: Mapping[str, int]) -> Mesh:
    """Return a mesh with the same axes in these sizes, on devices from 0."""
    axes = tuple(replace(axis, size=sizes[axis.name]) for axis in mesh.axes)
    return Mesh(axes, tuple(range(math.prod(sizes.values()))), None, mesh.device_kind)


def on_large_mesh(first: Module, second: Module, meshes: SmallerMeshes) -> Module:
    """Return the program of the first mesh with the shapes of the large one.

    Raises:
      InvalidInput: the two programs are not alike.
    """
    if len(first.computations) != len(second.computations):
        raise InvalidInput(_NOT_ALIKE)
    computations = []
    for computation, other in zip(first.computations, second.computations, strict=True):
        others = _by_operation(other)
        instructions = tuple(
            _scaled(before, others.get(key), meshes) for key, before in _by_operation(computation).items()
        )
        computations.append(
            Computation(computation.name, computation.entry, instructions, computation.complete)
        )
    return replace(first, computations=tuple(computations))


def _by_operation(computation: Computation) -> dict[tuple[str, str, int], Instruction]:
    """Return the instructions by their common key on all meshes: name of the operation and opcode."""
    seen: Counter[tuple[str, str]] = Counter()
    instructions = {}
    for instruction in computation.instructions:
        key = (instruction.opcode, instruction.attributes.get("metadata", ""))
        instructions[*key, seen[key]] = instruction
        seen[key] += 1
    return instructions


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


def _scaled(first: Instruction, second: Instruction | None, meshes: SmallerMeshes) -> Instruction:
    if second is None or first.shape_text is None or first.shape_text == second.shape_text:
        return first
    arrays = _ARRAY.findall(first.shape_text)
    others = [sizes for _, sizes in _ARRAY.findall(second.shape_text or "")]
    if len(arrays) != len(others):
        return first
    rest = iter(others)

    def array(match: re.Match[str]) -> str:
        sizes, other = match[2].split(","), next(rest).split(",")
        if len(other) != len(sizes):
            return match[0]
        large = (_size(int(a), int(b), meshes) for a, b in zip(sizes, other, strict=True))
        return f"{match[1]}[{','.join(map(str, large))}]"

    return first._replace(shape_text=_ARRAY.sub(array, first.shape_text))


def _size(first: int, second: int, meshes: SmallerMeshes) -> int:
    """Return the size of a dimension on a device of the large mesh. The ratio says which axes divide it."""
    if not first or not second:
        return first
    power = abs(math.log2(first / second))
    if power != int(power) or power > sum(meshes.powers.values()):
        return first
    growth = math.prod(meshes.growth[axis] for axis, own in meshes.powers.items() if int(power) & own)
    # A table with a row for each device grows, and all else shrinks.
    return first * growth if first > second else -(-first // growth)
