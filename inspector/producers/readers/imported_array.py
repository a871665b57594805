"""One array of a Snapshot from what files say of it: its shape and type, and how it was sharded."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from inspector.core import sharding
from inspector.core.formatting import counted, spec_text
from inspector.core.snapshot import (
    Array,
    Finding,
    Group,
    Mesh,
    Shard,
)
from inspector.core.typed_json import LARGEST
from inspector.producers.readers import limits
from inspector.producers.readers.saved_sharding import SavedSharding, key_of

UNKNOWN_DTYPE = "unknown"
_BITS = re.compile(r"(?:u?int|float|complex|bfloat)(\d{1,3})(?:_\w+)?")
_GROUPS: dict[str, Group] = {"params": "params", "opt_state": "opt_state"}


@dataclass(frozen=True)
class Stored:
    """What a file says of an array itself; None each where it does not."""

    shape: tuple[int, ...] | None = None
    dtype: str = UNKNOWN_DTYPE


@dataclass
class Room:
    """How many shards may still be told one by one: thousands of arrays on a large mesh are too many."""

    shards: int = limits.MOST_SHARDS


def group_of(path: str) -> Group:
    """What the first key that says so makes it: `params` or `opt_state`, wherever in the path."""
    return next((_GROUPS[key] for key in path.split("/") if key in _GROUPS), "other")


def itemsize(dtype: str) -> int | None:
    """Bytes of an element as JAX keeps it, where a type smaller than a byte takes one; None if unknown."""
    if dtype == "bool":
        return 1
    found = _BITS.fullmatch(dtype)
    return max(1, int(found[1]) // 8) if found else None


def placed(
    path: str,
    stored: Stored,
    saved: SavedSharding | None,
    mesh: Mesh | None,
    logical_axes: tuple[str | None, ...] | None = None,
    group: Group | None = None,
    room: Room | None = None,
) -> tuple[Array, Finding | None]:
    """The array on the Snapshot's mesh, with a finding where its sharding cannot be said there.

    `room` is shared by all arrays of a Snapshot: what is on another mesh than most takes of it.
    """
    shape, finding = stored.shape, None
    extra: dict[str, Any] = {}
    if saved is not None and saved.memory_kind is not None:
        extra["memory_kind"] = saved.memory_kind
    spec, shards = None, None
    if saved is not None and saved.spec is not None and saved.mesh is not None:
        # Python's `is` first: thousands of arrays share one mesh.
        here = mesh is not None and (saved.mesh is mesh or key_of(saved.mesh) == key_of(mesh))
        spec = saved.spec
        if shape is not None and len(spec) > len(shape):
            finding = _finding(
                path,
                f"has a PartitionSpec of {counted(len(spec), 'entry', 'entries')}, "
                f"but {counted(len(shape), 'dimension')}",
            )
            spec = None
        elif shape is not None:
            spec = (*spec, *(None,) * (len(shape) - len(spec)))
        if spec is not None and not here:
            shards = _explicit(shape, spec, saved.mesh, room or Room())
            axes = " × ".join(f"{axis.name} {axis.size}" for axis in saved.mesh.axes)
            if shards is None:
                finding = _finding(
                    path,
                    f"was {spec_text(spec)} on another mesh than most arrays ({axes}), "
                    "which cannot be said on this one",
                )
            spec = None
    elif saved is not None and saved.device is not None:
        if shape is not None:
            shards = (Shard(saved.device, tuple((0, size) for size in shape), 0),)
    elif saved is not None:
        finding = _finding(path, f"was saved with {saved.problem}")
    return _array(path, stored, spec, shards, mesh, logical_axes, group, extra), finding


def on_host(path: str, stored: Stored) -> Array:
    """An array that was in the host's memory alone: it has no shard, and takes nothing of a device."""
    array = _array(path, stored, None, None, None, None, None, {})
    if array.shape is None:
        return array
    return replace(array, shards=(), bytes_per_device=0)


def _array(
    path: str,
    stored: Stored,
    spec: Any,
    shards: tuple[Shard, ...] | None,
    mesh: Mesh | None,
    logical_axes: tuple[str | None, ...] | None,
    group: Group | None,
    extra: dict[str, Any],
) -> Array:
    shape = stored.shape
    size = itemsize(stored.dtype)
    total = None
    if shape is not None and size is not None and math.prod(shape) * size <= LARGEST:
        total = math.prod(shape) * size
    shard_shape, replicas = None, None
    if spec is not None and mesh is not None:
        replicas = sharding.replicas(spec, mesh)
        if shape is not None and not any(sharding.indivisible(shape, spec, mesh)):
            shard_shape = sharding.shard_shape(shape, spec, mesh)
    elif shards is not None:
        replicas = 1 + max(shard.replica for shard in shards)
        # The largest, as a captured array has it; other devices may hold less, or nothing.
        pieces = [tuple(stop - start for start, stop in shard.index) for shard in shards]
        shard_shape = max(pieces, key=math.prod)
    per_device = None
    if shard_shape is not None and size is not None and total is not None:
        per_device = math.prod(shard_shape) * size
    return Array(
        path=path,
        group=group or group_of(path),
        shape=shape,
        dtype=stored.dtype,
        logical_axes=logical_axes,
        spec=spec,
        shard_shape=shard_shape,
        bytes=total,
        bytes_per_device=per_device,
        replicas=replicas,
        shards=shards,
        extra=extra,
    )


def _explicit(
    shape: tuple[int, ...] | None, spec: Any, mesh: Mesh, room: Room
) -> tuple[Shard, ...] | None:
    """Each device's shard on a mesh that is not the Snapshot's."""
    if shape is None or mesh.size > room.shards:
        return None
    found = sharding.shards(Array("", "other", shape, "", spec=spec), mesh)
    room.shards -= len(found or ())
    return found


def _finding(path: str, words: str) -> Finding:
    return Finding(
        "warning",
        "sharding-unknown",
        f"{path} {words}: how it was sharded is not known.",
        array=path,
    )
