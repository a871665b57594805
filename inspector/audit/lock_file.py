"""Lock files: a short record of a layout's shardings and collectives, to be committed and compared.

A lock file is JSON, named `*.sharding.json`, with one line per array and per kind of collective, in a fixed
order. It has no times, so the same layout always gives the same file.
"""

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from inspector.files import output, strict_json
from inspector.records import snapshot as snapshots
from inspector.records import typed_json
from inspector.records.snapshot import Array, Group, Mesh, Snapshot, Spec
from inspector.records.typed_json import OMIT_NONE, NonNegativeInt, Record
from inspector.sharding.traffic import traffic
from inspector.text.errors import InvalidInput, shown

FORMAT = "sharding-lock"
VERSION = 1


@dataclass(frozen=True)
class LockedSource(Record):
    """The source of the Snapshot. A difference is a note, not a change."""

    kind: str
    target: str | None


@dataclass(frozen=True)
class LockedAxis(Record):
    """One mesh axis."""

    name: str
    size: NonNegativeInt
    type: str = "auto"


@dataclass(frozen=True)
class LockedMesh(Record):
    """The mesh. `devices` is a digest of the device order; None if ids count from 0 in mesh order."""

    axes: tuple[LockedAxis, ...]
    devices: str | None = None


@dataclass(frozen=True)
class LockedArray(Record):
    """One array. `shards` is a digest of each device's index ranges if no spec expresses them.

    `mesh` is the mesh of its spec, None if it is the mesh of the lock file.
    """

    path: str
    group: Group
    shape: tuple[NonNegativeInt, ...] | None
    dtype: str
    spec: Spec | None
    shards: str | None = field(default=None, metadata=OMIT_NONE)
    mesh: LockedMesh | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class LockedCollective(Record):
    """All collectives of one operation over the same mesh axes in one program, summed by `traffic`.

    Executions and bytes are per run and device. None means unknown. `axis_parts` are the parts of mesh axes
    along which they send, if `mesh_axes` is None because whole axes do not form the groups.
    """

    program: str
    op: str
    mesh_axes: tuple[str, ...] | None
    instructions: NonNegativeInt
    executions: NonNegativeInt | None
    payload_bytes: NonNegativeInt | None
    wire_bytes_per_device: NonNegativeInt | None
    conditional: bool
    axis_parts: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)

    @property
    def axes(self) -> tuple[str, ...] | None:
        """The mesh axes, or the parts of mesh axes, along which they send."""
        return self.axis_parts if self.mesh_axes is None else self.mesh_axes

    @property
    def key(self) -> tuple[Any, ...]:
        """What identifies it in a lock file, in sorting order."""
        return self.program, self.mesh_axes is None, self.axes is None, self.axes or (), self.op


@dataclass(frozen=True)
class LockFile(Record):
    """A lock file. `programs` names those with known collectives, also those without any."""

    source: LockedSource
    versions: dict[str, str]
    mesh: LockedMesh | None
    arrays: tuple[LockedArray, ...]
    programs: tuple[str, ...]
    collectives: tuple[LockedCollective, ...]


def locked(snapshot: Snapshot) -> LockFile:
    """Return the lock file of a Snapshot."""
    counted = [program for program in snapshot.programs if program.collectives is not None]
    names = [field.name for field in fields(LockedCollective) if field.name not in ("extra", "program")]
    collectives = [
        LockedCollective(program.name, **{name: getattr(row, name) for name in names})
        for program in counted
        for row in traffic(program.collectives or ())
    ]
    return LockFile(
        source=LockedSource(snapshot.source.kind, snapshot.source.target),
        versions=dict(sorted(snapshot.source.versions.items())),
        mesh=None if snapshot.mesh is None else _mesh(snapshot.mesh),
        arrays=tuple(
            _array(array, snapshot) for array in sorted(snapshot.arrays, key=lambda array: array.path)
        ),
        programs=tuple(sorted({program.name for program in counted})),
        collectives=tuple(sorted(collectives, key=lambda collective: collective.key)),
    )


def dumps(lock: LockFile) -> str:
    """Return the text of the lock file, with one line per array and per collective."""
    return typed_json.dumps(typed_json.encode_file(lock, FORMAT, VERSION))


def write(lock: LockFile, path: str | os.PathLike[str]) -> None:
    """Write a lock file completely or not at all."""
    output.write_text(dumps(lock), path)


def read(path: str | os.PathLike[str]) -> LockFile:
    """Read a lock file, or make one from a Snapshot file."""
    return from_json(strict_json.read(path), str(path))


def from_json(value: Any, what: str = "the lock file") -> LockFile:
    """Return the lock file in parsed JSON; raise InvalidInput, which calls it `what`, if it is none."""
    form = value.get("format") if isinstance(value, dict) else None
    if form == snapshots.FORMAT:
        return locked(snapshots.from_json(value, what))
    if form != FORMAT:
        raise InvalidInput(
            f'{what} is neither a lock file nor a Snapshot: it must have "format": "{FORMAT}" '
            f'or "{snapshots.FORMAT}"'
        )
    lock = typed_json.decode_file(LockFile, value, what, FORMAT, VERSION)
    names = [f"array {array.path}" for array in lock.arrays]
    names += [
        f"{collective.op} over {collective.axes} in {collective.program}" for collective in lock.collectives
    ]
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInput(f"{what} has {shown(name, 200)} {count} times, but must have it once")
    return lock


def _mesh(mesh: Mesh) -> LockedMesh:
    in_order = mesh.devices == tuple(range(mesh.size))
    return LockedMesh(
        tuple(LockedAxis(axis.name, axis.size, axis.type) for axis in mesh.axes),
        None if in_order else _digest(mesh.devices),
    )


def _array(array: Array, snapshot: Snapshot) -> LockedArray:
    shards = None
    if array.shards is not None:
        shards = _digest(sorted((shard.device, shard.index) for shard in array.shards))
    spec = None if array.spec is None else tuple(axes or None for axes in array.spec)
    mesh = None if array.mesh is None else snapshot.mesh_of(array)
    own = None if mesh is None else _mesh(mesh)
    return LockedArray(
        array.path, array.group, shape=array.shape, dtype=array.dtype, spec=spec, shards=shards, mesh=own
    )


def _digest(value: Any) -> str:
    """Return 12 bytes of a hash: enough to find a change."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]
