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
from pathlib import Path
from typing import Any

from inspector.core import output, record, snapshot, strict_json
from inspector.core.collectives import traffic
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import (
    Array,
    Group,
    Mesh,
    Snapshot,
    Spec,
)

FORMAT = "sharding-lock"
VERSION = 1


@dataclass(frozen=True)
class LockedSource:
    """Where the figures came from; another kind or target is told, and is no change by itself."""

    kind: str
    target: str | None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LockedAxis:
    """One mesh axis, the major one first."""

    name: str
    size: int
    type: str = "auto"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LockedMesh:
    """The mesh; `devices` is a digest of their order, None where they are numbered from 0 in mesh order."""

    axes: tuple[LockedAxis, ...]
    devices: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LockedArray:
    """One array. `shards` is a digest of every device's index ranges where the spec cannot say them."""

    path: str
    group: Group
    shape: tuple[int, ...] | None
    dtype: str
    spec: Spec | None
    shards: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LockedCollective:
    """All collectives of one op along the same mesh axes in one program, as `traffic` sums them.

    Executions and bytes are those of one run on one device; `mesh_axes` and figures are None where unknown.
    """

    program: str
    op: str
    mesh_axes: tuple[str, ...] | None
    instructions: int
    executions: int | None
    payload_bytes: int | None
    wire_bytes_per_device: int | None
    conditional: bool
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LockFile:
    """All of it. `programs` are those whose collectives were counted, also where there were none."""

    source: LockedSource
    versions: dict[str, str]
    mesh: LockedMesh | None
    arrays: tuple[LockedArray, ...]
    programs: tuple[str, ...]
    collectives: tuple[LockedCollective, ...]
    extra: dict[str, Any] = field(default_factory=dict)


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
    """The lock file's text: a line for each array and each collective."""
    parts = [f'"format": {json.dumps(FORMAT)}', f'"version": {VERSION}']
    for key, value in record.encode(lock).items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n  ".join(_row(row) for row in value)
            parts.append(f"{_json(key)}: [\n  {rows}\n ]")
        else:
            parts.append(f"{_json(key)}: {_json(value)}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


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
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the path
        raise InvalidInput(f"{str(path)!r} cannot be read: {error}") from None
    return from_json(strict_json.parse(content, str(path)), str(path))


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
    version = value.get("version")
    if type(version) is not int or version < 1:
        raise InvalidInput(f"{what} has version {shown(version)}, but must have an integer from 1")
    if version > VERSION:
        raise InvalidInput(
            f"{what} has version {shown(version)}, but this program reads up to version {VERSION}: "
            "use a newer Sharding Inspector, or write the lock file anew"
        )
    body = {key: part for key, part in value.items() if key not in ("format", "version")}
    try:
        lock = record.decode(LockFile, body)
    except InvalidInput as refused:
        raise InvalidInput(f"{what}: {refused}") from None
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


def _row(row: dict[str, Any]) -> str:
    # Nearly every array has a spec; what it has not need not stand in every line.
    return _json({key: value for key, value in row.items() if (key, value) != ("shards", None)})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
