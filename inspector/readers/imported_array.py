"""Make the Array records of a file from shapes, dtypes and saved shardings."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from inspector.layout.plan import now
from inspector.readers import limits
from inspector.readers.saved_sharding import SavedSharding, common_mesh
from inspector.records.snapshot import Array, Finding, Group, Kind, Mesh, Shard, Snapshot, Source, Spec
from inspector.records.typed_json import LARGEST
from inspector.sharding import placement
from inspector.sharding.array_groups import group_of_path
from inspector.sharding.meshes import mesh_key
from inspector.sharding.sharding_text import mesh_text, spec_text
from inspector.text.formatting import counted

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
