"""The mesh of the programs of HLO texts: named in the text, given by the user, or derived from shardings."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.compiled.hlo import entry, shardings
from inspector.compiled.hlo.module import Module
from inspector.compiled.hlo.shardings import HloSharding, NamedMesh
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted
from inspector.core.snapshot import Mesh, MeshAxis
from inspector.producers.readers import limits

# XLA invents axes named `axis_0`, which differ between instructions.
_INVENTED_AXIS = re.compile(r"_?axis_\d+")
_GROUPS = re.compile(r"replica_groups\s*+=\s*+(mesh\[[^\]]*+\](?:,\s*+device_ids=\([^()]*+\))?+)\s*+\{")
# Meshes in replica groups, of which a hostile text could have many.
_MOST_GROUP_MESHES = 1_000


@dataclass(frozen=True)
class FoundMesh:
    """The mesh of the programs with the most devices.

    Attributes:
      how: `named` in the text, `given` by the user, or `derived` from shardings with invented names.
      record: the mesh with the device ids of the device assignment, or with positions if it is unknown.
      numbered: whether the device ids are known.
    """

    mesh: NamedMesh
    how: Literal["named", "given", "derived"]
    record: Mesh
    numbered: bool


def devices_of(module: Module) -> int | None:
    """Return the number of devices in the module's header, None without one."""
    if module.partitions is None and module.replicas is None:
        return None
    return (module.partitions or 1) * (module.replicas or 1)


def find_mesh(
    modules: Sequence[Module],
    given: NamedMesh | None = None,
    assignments: Iterable[tuple[int, ...]] = (),
) -> FoundMesh | None:
    """Return the mesh of the programs with the most devices, None if no mesh expresses their shardings.

    Args:
      modules: the programs, also their texts before optimizations.
      given: the user's mesh, for texts that name none.
      assignments: device ids by position of each program, if known.

    Raises:
      InvalidInput: the given mesh has another number of devices than the programs.
    """
    sizes = [size for module in modules if (size := devices_of(module)) is not None]
    named, unnamed = _written(modules)
    if not sizes:  # a header without the number of devices
        sizes = [s.devices for s in unnamed if s.devices is not None and s.device is None]
    devices = max(sizes, default=None)
    counts = {mesh: count for mesh, count in named.items() if devices is None or mesh.size == devices}
    if counts:
        best = max(counts, key=lambda mesh: (mesh.order is None, counts[mesh]))
        return found_mesh(best, "named", assignments)
    if given is not None:
        if devices is not None and given.size != devices:
            raise InvalidInput(
                f"--mesh has {counted(given.size, 'device')}, but the program runs on {devices:,}"
            )
        return found_mesh(given, "given", assignments)
    if devices is None or devices < 2:
        return None
    derived = shardings.derived_mesh(unnamed, devices)
    if derived is None or (not unnamed and len(derived.axes) == 1):
        return None
    return found_mesh(derived, "derived", assignments)


def _written(modules: Iterable[Module]) -> tuple[Counter[NamedMesh], list[HloSharding]]:
    """Return how often each mesh with names of the program occurs, and the shardings without names."""
    named: Counter[NamedMesh] = Counter()
    unnamed: list[HloSharding] = []
    for module in modules:
        named.update(mesh for mesh in entry.named_meshes(module).values() if mesh.axes)
        values = (*(entry.inputs(module) or ()), *(entry.outputs(module) or ()))
        for sharding in (value.sharding for value in values):
            if sharding is None:
                continue
            if sharding.mesh is not None and not _is_invented(sharding.mesh):
                named[sharding.mesh] += 1
            else:
                unnamed.append(sharding)
        for mesh in _meshes_of_groups(module):
            if _is_invented(mesh):
                parts = tuple((shardings.Part(size, mesh.strides[name]),) for name, size in mesh.axes)
                unnamed.append(HloSharding(parts, mesh.size, mesh.order))
            else:
                named[mesh] += 1
    return named, unnamed


def _meshes_of_groups(module: Module) -> Iterator[NamedMesh]:
    written: dict[str, None] = {}
    for _, instruction in module.instructions:
        if len(written) == _MOST_GROUP_MESHES:
            break
        if match := _GROUPS.search(instruction.attributes_text):
            written.setdefault(match[1])
    for text in written:
        try:
            yield shardings.named_mesh(text)
        except InvalidInput:
            continue


def positions_of(mesh: NamedMesh) -> Sequence[int]:
    """Return the position in the device assignment of each device in mesh order."""
    if mesh.order is None:
        return range(mesh.size)
    positions: list[int] = mesh.order.positions().tolist()
    return positions


def _is_invented(mesh: NamedMesh) -> bool:
    return any(_INVENTED_AXIS.fullmatch(name) for name, _ in mesh.axes)


def found_mesh(
    mesh: NamedMesh,
    how: Literal["named", "given", "derived"],
    assignments: Iterable[tuple[int, ...]] = (),
) -> FoundMesh | None:
    """Return a mesh with its record, None if it has too many devices."""
    if not 0 < mesh.size <= limits.MOST_DEVICES:
        return None
    ids = next((assignment for assignment in assignments if len(assignment) == mesh.size), None)
    order = positions_of(mesh)
    record = Mesh(
        tuple(MeshAxis(name, size) for name, size in mesh.axes),
        tuple(order if ids is None else (ids[place] for place in order)),
        abstract=ids is None,
    )
    return FoundMesh(mesh, how, record, ids is not None)
