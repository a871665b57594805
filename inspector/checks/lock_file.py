"""What a project commits of a layout: a short, ordered record that a later Snapshot is held against.

A lock file is JSON, named `*.sharding.json`. Arrays are sorted by path and stand on a line each, and so do
collectives, summed by program, op and mesh axes, so that a change of one array changes one line. It has
no time and no measured figure: the same layout, inspected again, gives the same file.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import Any

from inspector.core import output, snapshot, strict_json, typed_json
from inspector.core.collectives import traffic
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import (
    Array,
    Group,
    Mesh,
    Snapshot,
    Spec,
)
from inspector.core.typed_json import OMIT_NONE, NonNegativeInt, Record

FORMAT = "sharding-lock"
VERSION = 1


@dataclass(frozen=True)
class LockedSource(Record):
    """Where the figures came from; another kind or target is told, and is no change by itself."""

    kind: str
    target: str | None


@dataclass(frozen=True)
class LockedAxis(Record):
    """One mesh axis, the major one first."""

    name: str
    size: NonNegativeInt
    type: str = "auto"


@dataclass(frozen=True)
class LockedMesh(Record):
    """The mesh; `devices` is a digest of their order, None where they are numbered from 0 in mesh order."""

    axes: tuple[LockedAxis, ...]
    devices: str | None = None


@dataclass(frozen=True)
class LockedArray(Record):
    """One array. `shards` is a digest of every device's index ranges where the spec cannot say them."""

    path: str
    group: Group
    shape: tuple[NonNegativeInt, ...] | None
    dtype: str
    spec: Spec | None
    shards: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class LockedCollective(Record):
    """All collectives of one op along the same mesh axes in one program, as `traffic` sums them.

    Executions and bytes are those of one run on one device; `mesh_axes` and figures are None where unknown.
    """

    program: str
    op: str
    mesh_axes: tuple[str, ...] | None
    instructions: NonNegativeInt
    executions: NonNegativeInt | None
    payload_bytes: NonNegativeInt | None
    wire_bytes_per_device: NonNegativeInt | None
    conditional: bool


@dataclass(frozen=True)
class LockFile(Record):
    """All of it. `programs` are those whose collectives were counted, also where there were none."""

    source: LockedSource
    versions: dict[str, str]
    mesh: LockedMesh | None
    arrays: tuple[LockedArray, ...]
    programs: tuple[str, ...]
    collectives: tuple[LockedCollective, ...]


def locked(found: Snapshot) -> LockFile:
    """What a lock file keeps of a Snapshot."""
    counted = [program for program in found.programs if program.collectives is not None]
    collectives = [
        LockedCollective(
            program.name,
            row.op,
            row.mesh_axes,
            row.instructions,
            row.executions,
            row.payload_bytes,
            row.wire_bytes_per_device,
            row.conditional,
        )
        for program in counted
        for row in traffic(program.collectives or ())
    ]
    return LockFile(
        source=LockedSource(found.source.kind, found.source.target),
        versions=dict(sorted(found.source.versions.items())),
        mesh=None if found.mesh is None else _mesh(found.mesh),
        arrays=tuple(_array(one) for one in sorted(found.arrays, key=lambda one: one.path)),
        programs=tuple(sorted({program.name for program in counted})),
        collectives=tuple(sorted(collectives, key=_place)),
    )


def dumps(lock: LockFile) -> str:
    """Return the text of the lock file, with one line per array and per collective."""
    return typed_json.dumps(typed_json.encode_file(lock, FORMAT, VERSION))


def write(lock: LockFile, path: str | os.PathLike[str]) -> None:
    """Write a lock file whole or not at all.

    Raises:
      InvalidInput: the file cannot be written.
    """
    output.write_text(dumps(lock), path)


def read(path: str | os.PathLike[str]) -> LockFile:
    """Read a lock file, or take what it would keep of a Snapshot file.

    Raises:
      InvalidInput: it cannot be opened, is neither of the two, is of a newer version, or contradicts itself.
    """
    return from_json(strict_json.read(path), str(path))


def from_json(value: Any, what: str = "the lock file") -> LockFile:
    """What `read` does, of parsed JSON."""
    form = value.get("format") if isinstance(value, dict) else None
    if form == snapshot.FORMAT:
        return locked(snapshot.from_json(value, what))
    if form != FORMAT:
        raise InvalidInput(
            f'{what} is neither a lock file nor a Snapshot: it must have "format": "{FORMAT}" '
            f'or "{snapshot.FORMAT}"'
        )
    lock = typed_json.decode_file(LockFile, value, what, FORMAT, VERSION)
    _refuse_repeats([one.path for one in lock.arrays], "the array", what)
    _refuse_repeats(
        [f"{one.program}: {one.op} over {one.mesh_axes}" for one in lock.collectives],
        "the collective",
        what,
    )
    return lock


def _refuse_repeats(names: list[str], noun: str, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInput(f"{what}: {noun} {shown(name, 200)} is there twice")
        seen.add(name)


def _mesh(mesh: Mesh) -> LockedMesh:
    in_order = mesh.devices == tuple(range(mesh.size))
    return LockedMesh(
        tuple(LockedAxis(axis.name, axis.size, axis.type) for axis in mesh.axes),
        None if in_order else _digest(mesh.devices),
    )


def _array(array: Array) -> LockedArray:
    shards = None
    if array.shards is not None:
        shards = _digest(sorted((shard.device, shard.index) for shard in array.shards))
    # An empty entry splits nothing, as None.
    spec = None if array.spec is None else tuple(axes or None for axes in array.spec)
    return LockedArray(array.path, array.group, array.shape, array.dtype, spec, shards)


def _place(one: LockedCollective) -> tuple[Any, ...]:
    return one.program, one.mesh_axes is None, one.mesh_axes or (), one.op


def _digest(value: Any) -> str:
    """Twelve bytes are enough: this tells a change, and guards against nobody."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]
