"""Read one array's sharding as Orbax writes it: a JSON object with mesh, devices and PartitionSpec.

https://github.com/google/orbax: `orbax/checkpoint/_src/metadata/sharding.py`. Its `shape` is the mesh shape.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inspector.readers import content, limits
from inspector.records.snapshot import Mesh, MeshAxis, Shard, Spec
from inspector.sharding.meshes import MeshKey, mesh_key
from inspector.text.errors import InvalidInput, shown

NAMED = "NamedSharding"
SINGLE_DEVICE = "SingleDeviceSharding"
# Kinds without a PartitionSpec.
_WITHOUT_SPEC = {
    "GSPMDSharding": "a GSPMDSharding, which has no PartitionSpec",
    "PositionalSharding": "a PositionalSharding, which JAX no longer has",
}
# How JAX and its plugins print a device: `TFRT_CPU_3`, `cpu:3`, `cuda:0`, `METAL:0`,
# `TPU_3(process=0,(1,0,0,0))`, `CudaDevice(id=0)`.
_DEVICE = re.compile(r"(?:TFRT_CPU_|TPU_|[a-z]\w{0,40}Device\(id=|[a-z]\w{0,20}:)(\d{1,9})\b", re.IGNORECASE)
# The devices of a mesh as Orbax writes them. In a string, the quotes would be escaped.
_GRID = re.compile(r'\{"mesh":\s*(\[(?:[\[\],\s]++|\{"id":\s*\d{1,18}\})*+)\}')
_REPLACED = 0  # replaces a grid in the text
_AXIS_TYPE = re.compile(r"(?:AxisType\.)?(Auto|Explicit|Manual)", re.IGNORECASE)


@dataclass(frozen=True)
class SavedSharding:
    """The saved sharding of one array: `mesh` and `spec` of a NamedSharding, or one `device`.

    Attributes:
      spec: the entries as written, possibly fewer than the array has dimensions.
      numbered: whether the file contains the device ids.
      problem: why neither a spec nor a device is known, as a noun phrase.
      shards: the shard of each device, if no spec on this mesh expresses them.
      unreduced: mesh axes on which devices hold partial sums, not copies.
    """

    mesh: Mesh | None = None
    spec: Spec | None = None
    device: int | None = None
    numbered: bool = True
    memory_kind: str | None = None
    problem: str | None = None
    shards: tuple[Shard, ...] | None = None
    unreduced: tuple[str, ...] = ()


class Meshes:
    """The meshes of one file, each stored once: thousands of arrays can share thousands of devices.

    `grids` has the device ids by the text that they were parsed from.
    """

    def __init__(self) -> None:
        self.grids: dict[str, tuple[int, ...] | None] = {}
        self._known: dict[Any, Mesh] = {}
        self._devices = 0

    def of(self, axes: tuple[MeshAxis, ...], devices: tuple[int, ...] | None = None) -> Mesh:
        """Return the mesh of these axes and devices. If `devices` is None, number them in mesh order.

        Raise InvalidInput if all meshes of the file are too large together.
        """
        key = (tuple((axis.name, axis.size, axis.type) for axis in axes), devices)
        if key not in self._known:
            size = math.prod(axis.size for axis in axes)
            self._devices += size
            if self._devices > limits.MOST_DEVICES_TOGETHER:
                raise InvalidInput(
                    f"the meshes of the file have more than {limits.MOST_DEVICES_TOGETHER:,} devices together"
                )
            self._known[key] = Mesh(axes, tuple(range(size)) if devices is None else devices)
        return self._known[key]


def read_text(text: str, what: str, meshes: Meshes) -> SavedSharding:
    """Read the JSON text of a sharding. A grid of devices that was parsed before is reused."""
    match = _GRID.search(text)
    if match is None:
        return read(content.parse_json(text.encode(), what), meshes)
    grid = match[1]
    if grid not in meshes.grids:
        meshes.grids[grid] = _device_ids(content.parse_json(grid.encode(), what))
    rest = f"{text[: match.start(1)]}{_REPLACED}{text[match.end(1) :]}"
    plain = content.parse_json(rest.encode(), what)
    if isinstance(plain, dict) and plain.get("device_mesh") == {"mesh": _REPLACED}:
        return read(plain, meshes, meshes.grids[grid])
    return read(content.parse_json(text.encode(), what), meshes)


def read(
    plain: object, meshes: Meshes | None = None, devices: tuple[int, ...] | None = None
) -> SavedSharding:
    """Read the parsed JSON of a sharding. If it cannot be used, return one with a `problem`.

    Args:
      meshes: the meshes of the same file.
      devices: the ids of its `device_mesh`, if they were parsed before.
    """
    if not isinstance(plain, dict) or not isinstance(plain.get("sharding_type"), str):
        return SavedSharding(problem="no sharding_type")
    kind = plain["sharding_type"]
    memory_kind = plain.get("memory_kind")
    memory_kind = memory_kind if isinstance(memory_kind, str) else None
    if kind == SINGLE_DEVICE:
        return _single_device(plain, memory_kind)
    if kind != NAMED:
        problem = _WITHOUT_SPEC.get(kind, f"the unknown sharding type {shown(kind)}")
        return SavedSharding(problem=problem, memory_kind=memory_kind)
    try:
        mesh, numbered = _mesh(plain, Meshes() if meshes is None else meshes, devices)
        spec = spec_of(plain.get("partition_spec"), mesh)
    except InvalidInput as refused:
        return SavedSharding(problem=f"a NamedSharding that cannot be read: {refused}")
    return SavedSharding(mesh, spec, None, numbered, memory_kind)


def spec_of(entries: object, mesh: Mesh, what: str = "partition_spec") -> Spec:
    """Return the spec of JSON entries: null, a mesh axis, or a list of mesh axes per dimension.

    Raise InvalidInput for others.
    """
    if not isinstance(entries, list):
        raise InvalidInput(f"{what} is {shown(entries)}, but must be a list")
    spec: list[tuple[str, ...] | None] = []
    used: set[str] = set()
    for entry in entries:
        axes = [entry] if isinstance(entry, str) else [] if entry is None else entry
        if not isinstance(axes, list) or not all(isinstance(axis, str) for axis in axes):
            raise InvalidInput(f"{what} has {shown(entry)}, but must have null, an axis or a list of axes")
        for axis in axes:
            if axis not in mesh.axis_names:
                raise InvalidInput(f"{what} has the axis {shown(axis)}, which the mesh lacks")
            if axis in used:
                raise InvalidInput(f"{what} has the axis {shown(axis)} twice")
            used.add(axis)
        spec.append(tuple(axes) or None)
    return tuple(spec)


def mesh_axes(names: object, sizes: object, types: object = None) -> tuple[MeshAxis, ...]:
    """Return mesh axes from JSON lists of names, sizes and axis types; raise InvalidInput for others."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InvalidInput(f"axis_names is {shown(names)}, but must be a list of names")
    if len(set(names)) != len(names):
        raise InvalidInput("axis_names has a name twice")
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise InvalidInput(f"the mesh shape is {shown(sizes)}, but must be a list of sizes from 1")
    if len(names) > limits.MOST_AXES:
        raise InvalidInput(f"the mesh has {len(names):,} axes, but at most {limits.MOST_AXES} are allowed")
    if len(sizes) != len(names):
        raise InvalidInput(f"the mesh has {len(names)} names, but {len(sizes)} sizes")
    if math.prod(sizes) > limits.MOST_DEVICES:
        raise InvalidInput(
            f"the mesh has {math.prod(sizes):,} devices, but at most {limits.MOST_DEVICES:,} are allowed"
        )
    kinds = ["auto"] * len(names)
    if isinstance(types, list) and len(types) == len(names):
        matches = [_AXIS_TYPE.fullmatch(kind) if isinstance(kind, str) else None for kind in types]
        kinds = [match[1].lower() if match else "auto" for match in matches]
    return tuple(map(MeshAxis, names, sizes, kinds))


def common_mesh(meshes: Iterable[Mesh | None]) -> Mesh | None:
    """Return the most frequent mesh, on a tie the first. Return None if there is none."""
    by_key: dict[MeshKey, Mesh] = {}
    canonical: dict[int, Mesh] = {}  # by identity: hashing thousands of devices is slow
    counts: Counter[int] = Counter()
    for mesh in meshes:
        if mesh is not None:
            if id(mesh) not in canonical:
                canonical[id(mesh)] = by_key.setdefault(mesh_key(mesh), mesh)
            counts[id(canonical[id(mesh)])] += 1
    return canonical[counts.most_common(1)[0][0]] if counts else None


def _mesh(plain: dict[str, Any], meshes: Meshes, devices: tuple[int, ...] | None) -> tuple[Mesh, bool]:
    """Return the mesh, and whether the file contains its device ids."""
    axes = mesh_axes(plain.get("axis_names"), plain.get("shape"), plain.get("axis_types"))
    size = math.prod(axis.size for axis in axes)
    device_mesh = plain.get("device_mesh")
    if device_mesh is None:
        return meshes.of(axes), False
    if devices is None:
        devices = _device_ids(device_mesh.get("mesh") if isinstance(device_mesh, dict) else None)
    if devices is None or len(devices) != size or len(set(devices)) != size:
        raise InvalidInput(f"device_mesh must have {size:,} different device ids")
    return meshes.of(axes, devices), True


def _device_ids(grid: object) -> tuple[int, ...] | None:
    """Return the ids of nested lists of {"id": 3} in row-major order, None if it is something else."""
    level: list[object] = [grid]
    while lists := [item for item in level if isinstance(item, list)]:
        if len(lists) != len(level):
            return None
        level = [item for inner in lists for item in inner]
    numbers = [item.get("id") if isinstance(item, dict) else None for item in level]
    ids = tuple(n for n in numbers if type(n) is int and 0 <= n < 2**63)
    return ids if len(ids) == len(numbers) else None


def _single_device(plain: dict[str, Any], memory_kind: str | None) -> SavedSharding:
    text = plain.get("device_str")
    match = _DEVICE.match(text) if isinstance(text, str) else None
    if match is None:
        return SavedSharding(
            problem=f"on the single device {shown(text)}, whose id is unknown",
            memory_kind=memory_kind,
        )
    return SavedSharding(device=int(match[1]), memory_kind=memory_kind)
