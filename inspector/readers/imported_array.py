"""Make the Array records of a file from shapes, dtypes and saved shardings.

Orbax writes the sharding of an array as a JSON object with mesh, devices and PartitionSpec, see
https://github.com/google/orbax: `orbax/checkpoint/_src/metadata/sharding.py`. Its `shape` is the mesh shape.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from inspector.layout.plan import now
from inspector.readers import content, limits
from inspector.records.snapshot import (
    Array,
    Finding,
    Group,
    Kind,
    Mesh,
    MeshAxis,
    Shard,
    Snapshot,
    Source,
    Spec,
)
from inspector.records.typed_json import LARGEST
from inspector.sharding import placement
from inspector.sharding.array_groups import group_of_path
from inspector.sharding.meshes import MeshKey, mesh_key
from inspector.sharding.sharding_text import mesh_text, spec_text
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted

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

    Raise InvalidInput for other JSON, and for an axis that the mesh lacks or that is used twice.
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
    """Return mesh axes from JSON lists of names, sizes and axis types; raise InvalidInput for other JSON."""
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


UNKNOWN_DTYPE = "unknown"
_BITS = re.compile(r"(?:u?int|float|complex|bfloat)(\d{1,3})(?:_\w+)?")


@dataclass(frozen=True)
class Stored:
    """The shape and the dtype of an array in a file. `shape` is None if unknown."""

    shape: tuple[int, ...] | None = None
    dtype: str = UNKNOWN_DTYPE

    @property
    def itemsize(self) -> int | None:
        """Bytes of an element in JAX, at least 1; None if the dtype is unknown."""
        if self.dtype == "bool":
            return 1
        match = _BITS.fullmatch(self.dtype)
        return max(1, int(match[1]) // 8) if match else None


class ImportedArrays:
    """The arrays and findings of one Snapshot.

    Its mesh is `mesh`, or by default the most frequent one of `shardings`; None if they have none.
    """

    def __init__(self, shardings: Iterable[SavedSharding] = (), mesh: Mesh | None = None) -> None:
        self.mesh = mesh or common_mesh(saved.mesh for saved in shardings)
        self.arrays: list[Array] = []
        self.findings: list[Finding] = []
        self._shards_left = limits.MOST_SHARDS

    def add(
        self,
        path: str,
        stored: Stored,
        saved: SavedSharding | None,
        logical_axes: tuple[str | None, ...] | None = None,
        group: Group | None = None,
        program: str | None = None,
    ) -> None:
        """Add an array, and a finding if the record cannot express its sharding.

        `program` is the name of the program that contains the array. An array on another mesh gets explicit
        shards. A spec with fewer entries than dimensions leaves the other dimensions unsharded, as in JAX. By
        default the group is derived from the path.
        """
        array = replace(_array(path, stored, logical_axes, group), program=program)
        if saved is not None:
            array = replace(array, memory_kind=saved.memory_kind)
            array, problem = self._with_sharding(array, stored.itemsize, saved)
            if problem is not None:
                message = f"{path} {problem}: its sharding is unknown."
                self.findings.append(Finding("warning", "sharding-unknown", message, array=path))
        self.arrays.append(array)

    def add_host_array(self, path: str, stored: Stored) -> None:
        """Add an array in host memory: it has no shards and no bytes on devices."""
        array = _array(path, stored)
        if array.shape is not None:
            array = replace(array, shards=(), bytes_per_device=0)
        self.arrays.append(array)

    def snapshot(
        self, kind: Kind, what: str, processes: int = 1, step: int | None = None, saved: str | None = None
    ) -> Snapshot:
        """Return the Snapshot of the arrays and findings. `step` and `saved` are those of its source."""
        source = Source(kind, None, now(), processes=processes, file=what, step=step, saved=saved)
        return Snapshot(
            source=source,
            layout=None,
            mesh=self.mesh,
            arrays=tuple(self.arrays),
            findings=tuple(self.findings),
        )

    def _with_sharding(
        self, array: Array, itemsize: int | None, saved: SavedSharding
    ) -> tuple[Array, str | None]:
        """Return the array with its sharding, and why the record cannot express it."""
        mesh, shape, spec = saved.mesh, array.shape, saved.spec
        if saved.shards is not None:
            shards = saved.shards if len(saved.shards) <= self._shards_left else None
            if shards is None:
                return (array, f"has more than {limits.MOST_SHARDS:,} shards with the arrays before it")
            self._shards_left -= len(shards)
        elif spec is not None and mesh is not None:
            if shape is not None:
                if len(spec) > len(shape):
                    entries = counted(len(spec), "entry", "entries")
                    rank = counted(len(shape), "dimension")
                    return array, f"has a PartitionSpec of {entries}, but {rank}"
                spec = (*spec, *(None,) * (len(shape) - len(spec)))
            # Identity first, because thousands of arrays share one mesh.
            if self.mesh is not None and (mesh is self.mesh or mesh_key(mesh) == mesh_key(self.mesh)):
                array = _with_spec(array, itemsize, spec, self.mesh)
                return placement.with_unreduced(array, saved.unreduced, self.mesh), None
            shards = self._shards(shape, spec, mesh)
            if shards is None:
                on = mesh_text(mesh)
                return array, f"was {spec_text(spec)} on another mesh than most arrays ({on})"
        elif saved.device is None:
            return array, f"was saved with {saved.problem}"
        elif shape is None:
            return array, None
        else:
            shards = (Shard(saved.device, tuple((0, size) for size in shape), 0),)
        # The largest shard, as in a captured array; other devices may have a smaller one.
        pieces = [tuple(stop - start for start, stop in shard.index) for shard in shards]
        replicas = 1 + max(shard.replica for shard in shards)
        array = replace(array, shards=shards, replicas=replicas)
        if saved.unreduced:
            array = replace(array, replicas=None, unreduced=tuple(saved.unreduced))
        return _with_shard_shape(array, itemsize, max(pieces, key=math.prod)), None

    def _shards(self, shape: tuple[int, ...] | None, spec: Spec, mesh: Mesh) -> tuple[Shard, ...] | None:
        """Return the shards on another mesh, None if the shape is unknown or there are too many."""
        if shape is None or mesh.size > self._shards_left:
            return None
        shards = placement.shards(Array("", "other", shape, "", spec=spec), mesh)
        self._shards_left -= len(shards or ())
        return shards


def _array(
    path: str, stored: Stored, logical_axes: tuple[str | None, ...] | None = None, group: Group | None = None
) -> Array:
    """Return the record without a sharding. By default the path determines the group."""
    group = group or group_of_path(path) or "other"
    array = Array(path, group, stored.shape, stored.dtype, logical_axes=logical_axes)
    if stored.shape is None or stored.itemsize is None:
        return array
    total = math.prod(stored.shape) * stored.itemsize
    return replace(array, bytes=total) if total <= LARGEST else array


def _with_spec(array: Array, itemsize: int | None, spec: Spec, mesh: Mesh) -> Array:
    array = replace(array, spec=spec, replicas=placement.replicas(spec, mesh))
    if array.shape is None or any(placement.indivisible(array.shape, spec, mesh)):
        return array
    return _with_shard_shape(array, itemsize, placement.shard_shape(array.shape, spec, mesh))


def _with_shard_shape(array: Array, itemsize: int | None, shape: tuple[int, ...]) -> Array:
    nbytes = None
    if itemsize is not None and array.bytes is not None:
        nbytes = math.prod(shape) * itemsize
    return replace(array, shard_shape=shape, bytes_per_device=nbytes)
