"""Read and write Snapshot files, and check that a Snapshot does not contradict itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from inspector.core import output, strict_json, typed_json
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot.arrays import Array, Mesh
from inspector.core.snapshot.contents import FORMAT, VERSION, Snapshot

SCHEMA_PATH = Path(__file__).parent.with_name("snapshot.schema.json")


def from_json(value: Any, what: str = "the Snapshot") -> Snapshot:
    """Return the Snapshot in parsed JSON.

    Raises:
      InvalidInput: it is not a Snapshot, has a newer version, or contradicts itself.
    """
    snapshot = typed_json.decode_file(Snapshot, value, what, FORMAT, VERSION)
    if snapshot.mesh is not None:
        _check_mesh(snapshot.mesh, f"{what}: mesh")
    _check_arrays(snapshot, what)
    return snapshot


def read(path: str | os.PathLike[str]) -> Snapshot:
    """Read a Snapshot file.

    Raises:
      InvalidInput: the file cannot be read or is not a Snapshot.
    """
    return from_json(strict_json.read(path), str(path))


def dumps(snapshot: Snapshot) -> str:
    """Return the Snapshot as JSON text, with one line per array and per program."""
    return typed_json.dumps(snapshot.to_json())


def write(snapshot: Snapshot, path: str | os.PathLike[str]) -> None:
    """Write a Snapshot file, whole or not at all.

    Raises:
      InvalidInput: the file cannot be written.
    """
    output.write_text(dumps(snapshot), path)


def _check_mesh(mesh: Mesh, where: str) -> None:
    names: set[str] = set()
    for i, axis in enumerate(mesh.axes):
        if axis.name in names:
            raise InvalidInput(
                f"{where}.axes[{i}].name is {shown(axis.name)}, but each axis must have a unique name"
            )
        names.add(axis.name)
    if len(mesh.devices) != mesh.size:
        # Do not print the product of the axes: it can have more digits than Python converts.
        raise InvalidInput(
            f"{where}.devices has {len(mesh.devices)} entries, but the axes have sizes "
            f"{shown('x'.join(map(str, mesh.shape)))}"
        )
    if len(set(mesh.devices)) != mesh.size:
        raise InvalidInput(f"{where}.devices has a device twice, but each must occur once")
    if mesh.processes is not None and len(mesh.processes) != mesh.size:
        raise InvalidInput(
            f"{where}.processes has {len(mesh.processes)} entries, "
            f"but must have one for each of {mesh.size} devices"
        )


def _check_arrays(snapshot: Snapshot, what: str) -> None:
    names = set(snapshot.mesh.axis_names) if snapshot.mesh else set()
    paths: set[str] = set()
    for array in snapshot.arrays:
        if array.path in paths:
            raise InvalidInput(f"{what}: the array {shown(array.path)} occurs twice")
        paths.add(array.path)
        where = f"{what}: {shown(array.path, 200)}"
        rank = None if array.shape is None else len(array.shape)
        for label in ("spec", "logical_axes", "shard_shape"):
            entries = getattr(array, label)
            if entries is not None and rank is not None and len(entries) != rank:
                raise InvalidInput(
                    f"{where} has {len(entries)} entries in {label}, "
                    f"but must have one for each of {rank} dimensions"
                )
        used = [axis for entry in array.spec or () for axis in entry or ()]
        for axis in used:
            if axis not in names:
                raise InvalidInput(
                    f"{where} is sharded over {shown(axis)}, but the mesh has no such axis"
                )
        if len(set(used)) != len(used):
            raise InvalidInput(f"{where} has a mesh axis twice in its spec, but may use it once")
        _check_shards(array, where)


def _check_shards(array: Array, where: str) -> None:
    if array.shape is None:
        if array.shards is not None:
            raise InvalidInput(f"{where} has shards, but no shape")
        return
    for i, shard in enumerate(array.shards or ()):
        if len(shard.index) != len(array.shape) or not all(
            start <= stop <= size
            for (start, stop), size in zip(shard.index, array.shape, strict=True)
        ):
            ranges = ", ".join(f"{start}:{stop}" for start, stop in shard.index)
            raise InvalidInput(
                f"{where}: shards[{i}].index is {shown(f'[{ranges}]')}, but must be a range "
                f"inside each dimension of {shown(str(array.shape))}"
            )
