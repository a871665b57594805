"""Make Array records from shardings alone. No shard is read, and nothing is gathered or moved.

A sharding is global: every process knows from it what each device of all processes holds.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from inspector.records import snapshot
from inspector.records.snapshot import Array, ArrayFacts, Finding, Group, Shard
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted
from inspector.tracing.leaves import (
    Leaf,
    Names,
    array_facts,
    entries_of,
    largest_shape,
    mesh_record,
    shards_of,
    spec_of,
    whole_names,
)

NO_MESH = "no-mesh"
ABSTRACT_MESH = "abstract-mesh"
OTHER_MESH = "other-mesh"
UNREDUCED = "unreduced"
UNEVEN = "indivisible"
HOST_LOCAL = "host-local"
LISTED_PATHS = 3

# Finding code -> the common property of the arrays.
_NOTES = {
    OTHER_MESH: "on an abstract mesh with other axes than the meshes of devices: their shards are unknown",
    UNREDUCED: "unreduced: devices hold partial sums, not copies",
    HOST_LOCAL: "local to one process: other processes may have their own",
}


@dataclass(frozen=True)
class _Placement:
    """The fields that all arrays with one sharding and one shape share."""

    spec: snapshot.Spec | None = None
    mesh: int | None = None
    shard_shape: tuple[int, ...] | None = None
    replicas: int | None = None
    shards: tuple[Shard, ...] | None = None
    unreduced: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    sharding: str | None = None
    mesh_axes: dict[str, int] | None = None


def main_mesh(
    shardings: Iterable[Any], given: Mesh | AbstractMesh | None = None
) -> Mesh | AbstractMesh | None:
    """Return the given mesh, or the mesh of most shardings, or None if no sharding has a mesh.

    A mesh of devices takes precedence over abstract meshes.

    Raises:
      InvalidInput: `given` is not a mesh.
    """
    if given is not None:
        if not isinstance(given, (Mesh, AbstractMesh)) or given.empty:
            raise InvalidInput(f"mesh is {shown(str(given))}, but must be a jax.sharding.Mesh with axes")
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


def _other_meshes(main: Mesh | AbstractMesh, shardings: Iterable[Any]) -> list[Any]:
    """Return the meshes of devices of these shardings without `main`, those of most shardings first."""
    counts: Counter[Any] = Counter()
    meshes: dict[Any, Any] = {}
    for sharding in shardings:
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
            key = _key(sharding.mesh)
            if not sharding.mesh.empty and key != _key(main):
                counts[key] += 1
                meshes.setdefault(key, sharding.mesh)
    return [meshes[key] for key, _ in counts.most_common()]


class ArrayRecords:
    """Makes Array records. Each sharding is read once per shape.

    Attributes:
      mesh: The main mesh, None if there is none.
      other_meshes: The other meshes of devices, in the order of `Snapshot.other_meshes`.
    """

    def __init__(self, mesh: Mesh | AbstractMesh | None, shardings: Iterable[Any] = ()) -> None:
        """Args: the main JAX mesh, None if there is none, and all shardings that can be on other meshes."""
        self._jax_meshes = [] if mesh is None else [mesh, *_other_meshes(mesh, shardings)]
        self._meshes = [mesh_record(jax_mesh) for jax_mesh in self._jax_meshes]
        self.mesh = self._meshes[0] if self._meshes else None
        self.other_meshes = tuple(self._meshes[1:])
        self._places = {_key(jax_mesh): place for place, jax_mesh in enumerate(self._jax_meshes)}
        self._order = {} if self.mesh is None else {device: n for n, device in enumerate(self.mesh.devices)}
        self._placements: dict[tuple[Any, tuple[int, ...]], _Placement] = {}
        self._noted: dict[str, list[str]] = {}
        self._uneven: list[Finding] = []

    def record(
        self,
        leaf: Leaf,
        path: str,
        group: Group,
        sharding: Sharding | None,
        names: Names | None,
        program: str | None = None,
    ) -> Array:
        """Return the record of an array. Of a live array, only its facts are read.

        Args:
          sharding: a JAX sharding, None if unknown.
          names: the logical axes of its dimensions.
          program: name of the compiled program that contains it.
        """
        shape, dtype = tuple(leaf.value.shape), leaf.value.dtype
        placement = self._placement(path, sharding, shape)
        facts = self._facts(leaf.value, path)
        shard_shape = placement.shard_shape
        return Array(
            path=path,
            group=group,
            shape=shape,
            dtype=str(dtype),
            memory_kind=getattr(sharding, "memory_kind", None),
            logical_axes=whole_names(names, len(shape))
            if names is not None and len(names) <= len(shape)
            else None,
            spec=placement.spec,
            shard_shape=shard_shape,
            bytes=math.prod(shape) * dtype.itemsize,
            bytes_per_device=None if shard_shape is None else math.prod(shard_shape) * dtype.itemsize,
            replicas=placement.replicas,
            shards=placement.shards,
            box=leaf.box,
            facts=facts,
            program=program,
            mesh=placement.mesh,
            unreduced=placement.unreduced,
            reduced=placement.reduced,
            sharding=placement.sharding,
            mesh_axes=placement.mesh_axes,
        )

    def findings(self) -> tuple[Finding, ...]:
        """Return notes on the records made so far."""
        notes = [*self._uneven]
        if self.mesh is None:
            message = "No array has a NamedSharding, so the mesh is unknown."
            notes.append(Finding("note", NO_MESH, message))
        elif isinstance(self._jax_meshes[0], AbstractMesh):
            message = "The mesh is abstract, so devices are numbered in mesh order."
            notes.append(Finding("note", ABSTRACT_MESH, message))
        for code, paths in self._noted.items():
            message = f"{counted(len(paths), 'array')} {_NOTES[code]}: {first_paths(paths)}"
            notes.append(Finding("note", code, message, array=paths[0]))
        return tuple(notes)

    def _facts(self, value: object, path: str) -> ArrayFacts | None:
        if not isinstance(value, jax.Array):
            return None
        facts = array_facts(value)
        if facts.fully_addressable and jax.process_count() > 1:
            self._note(HOST_LOCAL, path)
        return facts

    def mesh_of_program(self, shardings: Iterable[Any]) -> tuple[Any, snapshot.Mesh | None, int | None]:
        """Return the JAX mesh of most of a program's shardings, its record, and its value of `Program.mesh`.

        Without a NamedSharding these are those of the main mesh.
        """
        if self.mesh is None:
            return None, None, None
        counts = Counter(
            place
            for sharding in shardings
            if isinstance(sharding, NamedSharding) and (place := self._place(sharding.mesh)) is not None
        )
        place = max(counts, key=lambda key: counts[key], default=0)
        return self._jax_meshes[place], self._meshes[place], _index(place)

    def _place(self, mesh: Mesh | AbstractMesh) -> int | None:
        """Return the position of a mesh in the list of all meshes, None if it is in none."""
        if isinstance(mesh, AbstractMesh):  # it fits every mesh of the same axes
            axes = tuple(mesh.shape.items())
            known = [tuple(jax_mesh.shape.items()) for jax_mesh in self._jax_meshes]
            return known.index(axes) if axes in known else None
        return self._places.get(_key(mesh))

    def _note(self, code: str, path: str) -> None:
        self._noted.setdefault(code, []).append(path)

    def _placement(self, path: str, sharding: Sharding | None, shape: tuple[int, ...]) -> _Placement:
        key = (sharding, shape)
        if key not in self._placements:
            self._placements[key] = self._read(sharding, shape)
        placement = self._placements[key]
        if isinstance(sharding, NamedSharding):
            if self._place(sharding.mesh) is None:
                self._note(OTHER_MESH, path)
            if placement.unreduced:
                self._note(UNREDUCED, path)
            if placement.spec is not None and placement.shard_shape is None:
                message = f"{path} has dimensions that its mesh axes do not divide"
                self._uneven.append(Finding("warning", UNEVEN, message, array=path))
        return placement

    def _read(self, sharding: Sharding | None, shape: tuple[int, ...]) -> _Placement:
        if sharding is None:
            return _Placement()
        if isinstance(sharding, NamedSharding):
            place = self._place(sharding.mesh)
            if place is not None:
                return self._named(sharding, shape, place)
        placement = _Placement(sharding=type(sharding).__name__)
        if isinstance(sharding, NamedSharding):
            axes = {str(name): size for name, size in sharding.mesh.shape.items()}
            placement = _placement_of(sharding.spec, sharding=placement.sharding, mesh_axes=axes)
        try:
            return self._explicit(sharding, shape, placement)
        except Exception:  # sharding types raise different errors for shapes they cannot shard
            return placement

    def _named(self, sharding: NamedSharding, shape: tuple[int, ...], place: int) -> _Placement:
        mesh = self._meshes[place]
        placement = _placement_of(sharding.spec, mesh=_index(place))
        if PartitionSpec.UNCONSTRAINED in entries_of(sharding.spec):
            return replace(placement, sharding=str(sharding.spec))
        spec = spec_of(sharding.spec, len(shape))
        placement = replace(placement, spec=spec)
        try:
            shard_shape = tuple(sharding.shard_shape(shape))
        except ValueError:  # the mesh axes need not divide a dimension of an abstract array
            return placement
        split = [axis for axes in spec for axis in axes or ()]
        # Partial sums on unreduced axes are not replicas.
        different = mesh.ways((*split, *placement.unreduced))
        return replace(placement, shard_shape=shard_shape, replicas=mesh.size // different)

    def _explicit(self, sharding: Sharding, shape: tuple[int, ...], placement: _Placement) -> _Placement:
        shards = shards_of(sharding, shape)
        copies = set(Counter(shard.index for shard in shards).values())
        last = len(self._order)
        return replace(
            placement,
            shard_shape=largest_shape(shards),
            replicas=copies.pop() if len(copies) == 1 and not placement.unreduced else None,
            shards=tuple(
                sorted(shards, key=lambda shard: (self._order.get(shard.device, last), shard.device))
            ),
        )


def _index(place: int) -> int | None:
    """Return the value of `Array.mesh` for a position in the list of all meshes."""
    return place - 1 if place else None


def first_paths(paths: Sequence[str]) -> str:
    """Return the first few paths and the number of the others."""
    more = len(paths) - LISTED_PATHS
    listed = ", ".join(paths[:LISTED_PATHS])
    return f"{listed} and {more} more" if more > 0 else listed


def _key(mesh: Mesh | AbstractMesh) -> tuple[object, ...]:
    """Return a key that is equal for meshes on which a spec means the same. Axis types do not matter."""
    axes = tuple(mesh.shape.items())
    if isinstance(mesh, AbstractMesh):
        return axes
    return axes, tuple(device.id for device in mesh.devices.flat)


def _placement_of(spec: PartitionSpec, **fields: Any) -> _Placement:
    """Return a placement with the unreduced and the reduced mesh axes of a spec, and these fields."""
    unreduced, reduced = (tuple(sorted(getattr(spec, name, None) or ())) for name in ("unreduced", "reduced"))
    return _Placement(unreduced=unreduced, reduced=reduced, **fields)
