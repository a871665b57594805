"""The records of arrays from their shardings alone: no shard is looked at, nothing is gathered or moved.

A sharding is global knowledge: every process can say of it what each device of all processes holds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from inspector.core import snapshot
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import (
    Array,
    ArrayFacts,
    Box,
    Finding,
    Group,
    Shard,
)
from inspector.producers.leaves import Names
from inspector.producers.records import axis_records, entries_of, mesh_record, spec_of

NO_MESH = "no-mesh"
ABSTRACT_MESH = "abstract-mesh"
OTHER_MESH = "other-mesh"
UNREDUCED = "unreduced"
UNEVEN = "indivisible"
HOST_LOCAL = "host-local"
PATHS_IN_A_SENTENCE = 3

# Of one array, and of several.
_WORDS = {
    OTHER_MESH: (
        "is on another mesh than most, and its shards are told one by one",
        "are on another mesh than most, and their shards are told one by one",
    ),
    UNREDUCED: (
        "is unreduced: its devices hold parts of a sum, and no copies",
        "are unreduced: their devices hold parts of sums, and no copies",
    ),
    HOST_LOCAL: (
        "belongs to one process alone, and others may have their own",
        "belong to one process alone, and others may have their own",
    ),
}


@dataclass(frozen=True)
class Found:
    """One array as it was come upon: what it is called, and its sharding, None where that is unknown.

    `alive` is the array itself where there is one, of which only its facts are read.
    """

    path: str
    group: Group
    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    logical_axes: Names | None = None
    box: Box | None = None
    alive: jax.Array | None = None
    program: str | None = None


@dataclass(frozen=True)
class _Sharded:
    """What a sharding says of every array that has it and this shape."""

    spec: snapshot.Spec | None = None
    shard_shape: tuple[int, ...] | None = None
    replicas: int | None = None
    shards: tuple[Shard, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def main_mesh(shardings: Iterable[Any], given: Any = None) -> Any:
    """The mesh of most of these shardings, or the one that was given; None where there is none.

    A mesh of devices goes before one without, whatever their numbers.

    Raises:
      InvalidInput: what was given is no mesh.
    """
    if given is not None:
        if not isinstance(given, (Mesh, AbstractMesh)) or given.empty:
            raise InvalidInput(
                f"mesh is {shown(str(given))}, but must be a jax.sharding.Mesh with axes"
            )
        return given
    counts: Counter[Any] = Counter()
    meshes: dict[Any, Any] = {}
    for sharding in shardings:
        if isinstance(sharding, NamedSharding) and not sharding.mesh.empty:
            key = _key(sharding.mesh)
            counts[key] += 1
            meshes.setdefault(key, sharding.mesh)
    if not counts:
        return None
    best = max(counts, key=lambda key: (not isinstance(meshes[key], AbstractMesh), counts[key]))
    return meshes[best]


class ArrayRecords:
    """Makes the records of arrays on one mesh, each sharding read once, and says what stands out."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = None if mesh is None else _record(mesh)
        self._jax_mesh = mesh
        self._key = None if mesh is None else _key(mesh)
        self._abstract = isinstance(mesh, AbstractMesh)
        self._places = {} if self.mesh is None else _places(self.mesh)
        self._known: dict[tuple[Any, tuple[int, ...]], _Sharded] = {}
        self._facts: dict[Any, dict[str, Any]] = {}
        self._told: dict[str, list[str]] = {}
        self._uneven: list[Finding] = []

    def record(self, found: Found) -> Array:
        """The record of one array."""
        said = self._sharded(found)
        itemsize = found.dtype.itemsize
        extra = dict(said.extra)
        facts = None
        if found.alive is not None:
            facts = self._facts_of(found.alive)
            if facts.fully_addressable and jax.process_count() > 1:
                self._tell(HOST_LOCAL, found.path)
            if found.alive.is_deleted():
                extra["deleted"] = True
        elif getattr(found.sharding, "memory_kind", None) is not None:
            extra["memory_kind"] = found.sharding.memory_kind
        rank = len(found.shape)
        names = found.logical_axes
        return Array(
            path=found.path,
            group=found.group,
            shape=found.shape,
            dtype=str(found.dtype),
            logical_axes=names if names is not None and len(names) == rank else None,
            spec=said.spec,
            shard_shape=said.shard_shape,
            bytes=math.prod(found.shape) * itemsize,
            bytes_per_device=None
            if said.shard_shape is None
            else math.prod(said.shard_shape) * itemsize,
            replicas=said.replicas,
            shards=said.shards,
            box=found.box,
            facts=facts,
            program=found.program,
            extra=extra,
        )

    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the records must know to read them right."""
        notes = [*self._uneven]
        if self.mesh is None:
            notes.append(
                Finding("note", NO_MESH, "no array has a NamedSharding, so that no mesh is known")
            )
        elif self._abstract:
            message = "the mesh has no devices: they are numbered by their places on it"
            notes.append(Finding("note", ABSTRACT_MESH, message))
        for code, paths in self._told.items():
            one, many = _WORDS[code]
            words = one if len(paths) == 1 else many
            message = f"{counted(len(paths), 'array')} {words}: {some_of(paths)}"
            notes.append(Finding("note", code, message, array=paths[0]))
        return tuple(notes)

    def _is_main(self, mesh: Any) -> bool:
        if self.mesh is None:
            return False
        if isinstance(mesh, AbstractMesh):  # of any devices, so of these, too
            return tuple(mesh.shape.items()) == tuple(self._jax_mesh.shape.items())
        return _key(mesh) == self._key

    def _tell(self, code: str, path: str) -> None:
        self._told.setdefault(code, []).append(path)

    def _sharded(self, found: Found) -> _Sharded:
        key = (found.sharding, found.shape)
        if key not in self._known:
            self._known[key] = self._read(found.sharding, found.shape)
        said = self._known[key]
        if isinstance(found.sharding, NamedSharding):
            if not self._is_main(found.sharding.mesh):
                self._tell(OTHER_MESH, found.path)
            if said.extra.get("unreduced"):
                self._tell(UNREDUCED, found.path)
            if said.spec is not None and said.shard_shape is None:
                message = f"{found.path} has dimensions that its mesh axes do not divide"
                self._uneven.append(Finding("warning", UNEVEN, message, array=found.path))
        return said

    def _read(self, sharding: Any, shape: tuple[int, ...]) -> _Sharded:
        if sharding is None:
            return _Sharded()
        if isinstance(sharding, NamedSharding) and self._is_main(sharding.mesh):
            return self._named(sharding, shape)
        extra = {"sharding": type(sharding).__name__}
        if isinstance(sharding, NamedSharding):
            extra |= _unreduced(sharding.spec)
            extra["mesh_axes"] = {str(name): size for name, size in sharding.mesh.shape.items()}
        try:
            return self._explicit(sharding, shape, extra)
        except Exception:  # each kind of sharding has its own for what it cannot say
            return _Sharded(extra=extra)

    def _named(self, sharding: NamedSharding, shape: tuple[int, ...]) -> _Sharded:
        extra = _unreduced(sharding.spec)
        if PartitionSpec.UNCONSTRAINED in entries_of(sharding.spec):
            return _Sharded(extra=extra | {"sharding": str(sharding.spec)})
        spec = spec_of(sharding.spec, len(shape))
        try:
            piece = tuple(sharding.shard_shape(shape))
        except ValueError:  # a dimension that does not divide, of an array that is none yet
            return _Sharded(spec=spec, extra=extra)
        split = [axis for axes in spec for axis in axes or ()]
        # Parts of a sum are no copies of one another.
        different = self.mesh.ways((*split, *extra.get("unreduced", ())))
        return _Sharded(spec, piece, self.mesh.size // different, extra=extra)

    def _explicit(self, sharding: Any, shape: tuple[int, ...], extra: dict[str, Any]) -> _Sharded:
        indices = sharding.devices_indices_map(shape)
        # As JAX counts copies: in the order of the sharding's own devices.
        seen: Counter[Any] = Counter()
        shards = []
        for device, index in indices.items():
            bounds = tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
            shards.append(Shard(device.id, bounds, seen[bounds], device.process_index))
            seen[bounds] += 1
        last = len(self._places)
        shards.sort(key=lambda shard: (self._places.get(shard.device, last), shard.device))
        pieces = [tuple(stop - start for start, stop in shard.index) for shard in shards]
        copies = set(seen.values())
        return _Sharded(
            None,
            max(pieces, key=math.prod),
            copies.pop() if len(copies) == 1 and not extra.get("unreduced") else None,
            tuple(shards),
            extra,
        )

    def _facts_of(self, array: jax.Array) -> ArrayFacts:
        """What the array knows of its devices; not by its shards, of which there may be very many."""
        sharding = array.sharding
        if sharding not in self._facts:
            devices = sharding.device_set
            processes = {device.process_index for device in devices}
            several = "one process" if len(processes) == 1 else "several processes"
            self._facts[sharding] = {
                "fully_addressable": sharding.is_fully_addressable,
                "fully_replicated": sharding.is_fully_replicated,
                "placement": "single device" if len(devices) == 1 else several,
                "devices": len(devices),
                "addressable_shards": len(sharding.addressable_devices),
                "global_shards": len(devices),
                "memory_kind": sharding.memory_kind,
            }
        return ArrayFacts(committed=bool(array.committed), **self._facts[sharding])


def some_of(paths: Sequence[str]) -> str:
    """The first of some paths, and how many more there are."""
    more = len(paths) - PATHS_IN_A_SENTENCE
    named = ", ".join(paths[:PATHS_IN_A_SENTENCE])
    return f"{named} and {more} more" if more > 0 else named


def _record(mesh: Any) -> snapshot.Mesh:
    if not isinstance(mesh, AbstractMesh):
        return mesh_record(mesh)
    places = tuple(range(mesh.size))
    return snapshot.Mesh(axis_records(mesh), places, extra={"abstract": True})


def _places(mesh: snapshot.Mesh) -> dict[int, int]:
    return {device: place for place, device in enumerate(mesh.devices)}


def _key(mesh: Any) -> Any:
    """What two meshes share on which a spec means the same; the types of axes say nothing of places."""
    if isinstance(mesh, AbstractMesh):
        return tuple(mesh.shape.items())
    return (tuple(mesh.shape.items()), tuple(device.id for device in mesh.devices.flat))


def _unreduced(spec: PartitionSpec) -> dict[str, Any]:
    said = {}
    for name in ("unreduced", "reduced"):
        axes = getattr(spec, name, None)
        if axes:
            said[name] = sorted(axes)
    return said
