"""Make the Array record of one stored array from its shape, its dtype and its saved sharding."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from inspector.core import sharding
from inspector.core.formatting import counted, mesh_text, spec_text
from inspector.core.snapshot import Array, Finding, Group, Mesh, Shard
from inspector.core.typed_json import LARGEST
from inspector.producers.readers import limits
from inspector.producers.readers.saved_sharding import SavedSharding, key_of

UNKNOWN_DTYPE = "unknown"
_BITS = re.compile(r"(?:u?int|float|complex|bfloat)(\d{1,3})(?:_\w+)?")
_GROUPS: dict[str, Group] = {"params": "params", "opt_state": "opt_state"}


@dataclass(frozen=True)
class Stored:
    """The shape and the dtype of an array in a file. `shape` is None if unknown."""

    shape: tuple[int, ...] | None = None
    dtype: str = UNKNOWN_DTYPE


@dataclass
class ShardBudget:
    """The number of shards that a Snapshot can still list."""

    shards: int = limits.MOST_SHARDS


def group_of(path: str) -> Group:
    """Return the first of `params` and `opt_state` among the keys of a path, else `other`."""
    return next((_GROUPS[key] for key in path.split("/") if key in _GROUPS), "other")


def itemsize(dtype: str) -> int | None:
    """Return the bytes of an element in JAX, at least 1; None if the dtype is unknown."""
    if dtype == "bool":
        return 1
    found = _BITS.fullmatch(dtype)
    return max(1, int(found[1]) // 8) if found else None


def imported_array(
    path: str,
    stored: Stored,
    saved: SavedSharding | None,
    mesh: Mesh | None,
    logical_axes: tuple[str | None, ...] | None = None,
    group: Group | None = None,
    budget: ShardBudget | None = None,
) -> tuple[Array, Finding | None]:
    """Return the record of an array, and a finding if the record cannot express its sharding.

    A spec with fewer entries than dimensions leaves the other dimensions unsharded, as in JAX.

    Args:
      mesh: the mesh of the Snapshot. An array on another mesh gets explicit shards.
      group: the group of the array; None to derive it from the path.
      budget: shared by all arrays of a Snapshot; explicit shards are taken from it.
    """
    shape, finding = stored.shape, None
    spec, shards = None, None
    if saved is not None and saved.spec is not None and saved.mesh is not None:
        # Identity first, because thousands of arrays share one mesh.
        on_mesh = mesh is not None and (saved.mesh is mesh or key_of(saved.mesh) == key_of(mesh))
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
        if spec is not None and not on_mesh:
            shards = _shards(shape, spec, saved.mesh, budget or ShardBudget())
            if shards is None:
                axes = mesh_text(saved.mesh)
                finding = _finding(
                    path, f"was {spec_text(spec)} on another mesh than most arrays ({axes})"
                )
            spec = None
    elif saved is not None and saved.device is not None:
        if shape is not None:
            shards = (Shard(saved.device, tuple((0, size) for size in shape), 0),)
    elif saved is not None:
        finding = _finding(path, f"was saved with {saved.problem}")
    array = _array(path, stored, spec, shards, mesh, logical_axes, group)
    return replace(array, memory_kind=None if saved is None else saved.memory_kind), finding


def host_array(path: str, stored: Stored) -> Array:
    """Return the record of an array in host memory: it has no shards and no bytes on devices."""
    array = _array(path, stored)
    if array.shape is None:
        return array
    return replace(array, shards=(), bytes_per_device=0)


def _array(
    path: str,
    stored: Stored,
    spec: Any = None,
    shards: tuple[Shard, ...] | None = None,
    mesh: Mesh | None = None,
    logical_axes: tuple[str | None, ...] | None = None,
    group: Group | None = None,
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
        # The largest shard, as in a captured array; other devices may have a smaller one.
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
    )


def _shards(
    shape: tuple[int, ...] | None, spec: Any, mesh: Mesh, budget: ShardBudget
) -> tuple[Shard, ...] | None:
    """Return the shards on another mesh, None if the shape is unknown or the budget is used up."""
    if shape is None or mesh.size > budget.shards:
        return None
    found = sharding.shards(Array("", "other", shape, "", spec=spec), mesh)
    budget.shards -= len(found or ())
    return found


def _finding(path: str, words: str) -> Finding:
    return Finding(
        "warning", "sharding-unknown", f"{path} {words}: its sharding is unknown.", array=path
    )
