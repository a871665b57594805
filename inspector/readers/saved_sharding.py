"""One array's sharding as Orbax writes it: a JSON object with the mesh, its devices and the PartitionSpec.

https://github.com/google/orbax: `orbax/checkpoint/_src/metadata/sharding.py`. `shape` in it is the mesh's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inspector.errors import Refused, shown
from inspector.readers import limits
from inspector.snapshot import Mesh, MeshAxis, Spec

NAMED = "NamedSharding"
SINGLE_DEVICE = "SingleDeviceSharding"
# Kinds that say nothing of the mesh, or that JAX itself no longer has.
_WITHOUT_SPEC = {
    "GSPMDSharding": "a GSPMDSharding, which holds no PartitionSpec",
    "PositionalSharding": "a PositionalSharding, which JAX no longer has",
}
# `TFRT_CPU_3`, `cpu:3`, `cuda:0`, `TPU_3(process=0,(1,0,0,0))`: how JAX prints a device.
_DEVICE = re.compile(
    r"(?:TFRT_CPU_|CpuDevice\(id=|(?:cpu|gpu|cuda|rocm|tpu):|TPU_)(\d{1,9})\b", re.IGNORECASE
)
_AXIS_TYPE = re.compile(r"(?:AxisType\.)?(Auto|Explicit|Manual)", re.IGNORECASE)


@dataclass(frozen=True)
class SavedSharding:
    """What is said of one array: `mesh` and `spec` of a NamedSharding, or the one `device` that had it.

    `spec` has as many entries as were written, which may be fewer than the array has dimensions. `problem`
    says in half a sentence why neither is known. `numbered` is whether the file names the devices.
    """

    mesh: Mesh | None = None
    spec: Spec | None = None
    device: int | None = None
    numbered: bool = True
    memory_kind: str | None = None
    problem: str | None = None


def read(plain: Any) -> SavedSharding:
    """Read the parsed object; what cannot be used becomes a `problem`, for the other arrays can."""
    if not isinstance(plain, dict) or not isinstance(plain.get("sharding_type"), str):
        return SavedSharding(problem="no sharding_type")
    kind = plain["sharding_type"]
    memory_kind = plain.get("memory_kind")
    memory_kind = memory_kind if isinstance(memory_kind, str) else None
    if kind == SINGLE_DEVICE:
        return _single_device(plain, memory_kind)
    if kind != NAMED:
        return SavedSharding(
            problem=_WITHOUT_SPEC.get(kind, f"a {shown(kind)}, which is not known here"),
            memory_kind=memory_kind,
        )
    try:
        mesh, numbered = _mesh(plain)
        spec = spec_of(plain.get("partition_spec"), mesh)
    except Refused as refused:
        return SavedSharding(problem=f"a NamedSharding that cannot be read: {refused}")
    return SavedSharding(mesh, spec, None, numbered, memory_kind)


def spec_of(entries: Any, mesh: Mesh, what: str = "partition_spec") -> Spec:
    """A PartitionSpec from JSON: null, the name of a mesh axis, or a list of names for each dimension.

    Raises:
      Refused: it is none, or names an axis that the mesh lacks or twice.
    """
    if not isinstance(entries, list):
        raise Refused(f"{what} is {shown(entries)}, but must be a list")
    spec: list[tuple[str, ...] | None] = []
    used: set[str] = set()
    for entry in entries:
        axes = [entry] if isinstance(entry, str) else [] if entry is None else entry
        if not isinstance(axes, list) or not all(isinstance(axis, str) for axis in axes):
            raise Refused(
                f"{what} has {shown(entry)}, but must have null, an axis or a list of axes"
            )
        for axis in axes:
            if axis not in mesh.axis_names:
                raise Refused(f"{what} names the axis {shown(axis)}, which the mesh lacks")
            if axis in used:
                raise Refused(f"{what} names the axis {shown(axis)} twice")
            used.add(axis)
        spec.append(tuple(axes) or None)
    return tuple(spec)


def mesh_axes(names: Any, sizes: Any, types: Any = None) -> tuple[MeshAxis, ...]:
    """Mesh axes from lists of names and sizes.

    Raises:
      Refused: the lists do not fit each other, or make no mesh.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise Refused(f"axis_names is {shown(names)}, but must be a list of names")
    if len(set(names)) != len(names):
        raise Refused("axis_names has a name twice")
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise Refused(f"the mesh's shape is {shown(sizes)}, but must be a list of sizes from 1")
    if len(names) > limits.MOST_AXES:
        raise Refused(f"the mesh has {len(names):,} axes, at most {limits.MOST_AXES} are possible")
    if len(sizes) != len(names):
        raise Refused(f"the mesh has {len(names)} names, but {len(sizes)} sizes")
    if math.prod(sizes) > limits.MOST_DEVICES:
        raise Refused(f"the mesh has more than {limits.MOST_DEVICES:,} devices")
    kinds = ["auto"] * len(names)
    if isinstance(types, list) and len(types) == len(names):
        matches = [_AXIS_TYPE.fullmatch(one) if isinstance(one, str) else None for one in types]
        kinds = [match[1].lower() if match else "auto" for match in matches]
    return tuple(map(MeshAxis, names, sizes, kinds))


def common_mesh(meshes: Iterable[Mesh | None]) -> Mesh | None:
    """The mesh that most arrays are on, the first of several; None where there is none."""
    by_key: dict[Any, Mesh] = {}
    counts: Counter[Any] = Counter()
    for mesh in meshes:
        if mesh is not None:
            key = key_of(mesh)
            by_key.setdefault(key, mesh)
            counts[key] += 1
    return by_key[counts.most_common(1)[0][0]] if counts else None


def key_of(mesh: Mesh) -> Any:
    """Equal for equal meshes."""
    return tuple((axis.name, axis.size, axis.type) for axis in mesh.axes), mesh.devices


def _mesh(plain: dict[str, Any]) -> tuple[Mesh, bool]:
    """The mesh, and whether the file names its devices; else they are numbered in mesh order."""
    axes = mesh_axes(plain.get("axis_names"), plain.get("shape"), plain.get("axis_types"))
    size = math.prod(axis.size for axis in axes)
    device_mesh = plain.get("device_mesh")
    if device_mesh is None:
        return Mesh(axes, tuple(range(size))), False
    grid = device_mesh.get("mesh") if isinstance(device_mesh, dict) else None
    devices = _device_ids(grid)
    if devices is None or len(devices) != size or len(set(devices)) != size:
        raise Refused(f"device_mesh does not name {size:,} devices, each once")
    return Mesh(axes, devices), True


def _device_ids(grid: Any) -> tuple[int, ...] | None:
    """The ids of nested lists of {"id": 3}, the last level varying fastest."""
    level = [grid]
    while any(isinstance(item, list) for item in level):
        if not all(isinstance(item, list) for item in level):
            return None
        level = [item for inner in level for item in inner]
    ids = [item.get("id") if isinstance(item, dict) else None for item in level]
    if not all(type(one) is int and 0 <= one < 2**63 for one in ids):
        return None
    return tuple(ids)


def _single_device(plain: dict[str, Any], memory_kind: str | None) -> SavedSharding:
    text = plain.get("device_str")
    found = _DEVICE.search(text) if isinstance(text, str) else None
    if found is None:
        return SavedSharding(
            problem=f"on the single device {shown(text)}, whose number is not known",
            memory_kind=memory_kind,
        )
    return SavedSharding(device=int(found[1]), memory_kind=memory_kind)
