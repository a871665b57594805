"""Turn the recorded moves of a program into `Reshard` records, with the bytes from device to device."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inspector.core import sharding, strict_json, typed_json
from inspector.core.printable import one_line
from inspector.core.sharding import Placement
from inspector.core.snapshot import Array, Mesh, MeshAxis, Reshard, ReshardedArrays, Shard, Spec
from inspector.guides.transfer import moving_elements

_MOST_LINE = 200  # characters


@dataclass(frozen=True)
class _Side:
    """The place of an array before or after a move.

    Attributes:
      mesh: its mesh, None without a NamedSharding.
      spec: the PartitionSpec on it, None without a NamedSharding.
      on: the mesh that `placement` refers to. Without a NamedSharding it has a single axis.
      placement: the shard of each device, None if unknown.
    """

    mesh: Mesh | None
    spec: Spec | None
    on: Mesh
    placement: Placement | None


def read(path: Path) -> tuple[Reshard, ...]:
    """Return the moves in a file that the recorder wrote, those with the most bytes first.

    Moves that change neither devices nor shards, for example to another kind of memory, are left out.
    """
    written = strict_json.read(path)
    meshes = [typed_json.decode(Mesh, mesh, "mesh") for mesh in written["meshes"]]
    reshards = [reshard for move in written["moves"] for reshard in _reshards(move, meshes)]
    return tuple(sorted(reshards, key=lambda reshard: -reshard.executions * (reshard.moved or 0)))


def _reshards(move: Mapping[str, Any], meshes: list[Mesh]) -> list[Reshard]:
    """Return one record for each pair of source and target of the arrays that one line moves."""
    groups: dict[Any, list[tuple[ReshardedArrays, _Side, _Side]]] = {}
    for arrays in move["arrays"]:
        shape = tuple(arrays["shape"])
        before, after = (_side(arrays[key], shape, meshes) for key in ("source", "target"))
        if before.on.devices == after.on.devices and _same(before.placement, after.placement):
            continue
        size = int(np.prod(shape, dtype=float)) * arrays["itemsize"]
        record = ReshardedArrays(arrays["count"], shape, arrays["dtype"], size, before.spec, after.spec)
        key = (before.mesh, before.on.devices, after.mesh, after.on.devices)
        groups.setdefault(key, []).append((record, before, after))
    place = move["place"]
    line = None if place is None else f"{Path(place[0]).name}:{place[1]}"
    return [
        Reshard(
            operation=move["operation"],
            line=None if line is None else one_line(line)[-_MOST_LINE:],
            executions=max(move["executions"], 1),
            source_devices=old,
            target_devices=new,
            source_mesh=source_mesh,
            target_mesh=target_mesh,
            arrays=tuple(record for record, _, _ in group),
            routes=_routes(group),
        )
        for (source_mesh, old, target_mesh, new), group in groups.items()
    ]


def _side(written: Mapping[str, Any], shape: tuple[int, ...], meshes: list[Mesh]) -> _Side:
    if "spec" in written:
        mesh = meshes[written["mesh"]]
        spec = tuple(None if axes is None else tuple(axes) for axes in written["spec"])
        array = Array("", "other", shape, "", spec=spec)
        return _Side(mesh, spec, mesh, sharding.place_array(array, mesh))
    shards = tuple(
        Shard(device, tuple((start, stop) for start, stop in index), 0)
        for device, index in written.get("shards", ())
    )
    devices = tuple(shard.device for shard in shards) or tuple(written["devices"])
    on = Mesh((MeshAxis("device", len(devices)),), devices)
    array = Array("", "other", shape, "", shards=shards)
    return _Side(None, None, on, sharding.place_array(array, on) if shards else None)


def _same(before: Placement | None, after: Placement | None) -> bool:
    """Return whether devices in the same order hold the same index ranges."""
    if before is None or after is None:
        return False
    return np.array_equal(before.starts, after.starts) and np.array_equal(before.stops, after.stops)


def _routes(
    group: list[tuple[ReshardedArrays, _Side, _Side]],
) -> tuple[tuple[int, int, int], ...] | None:
    """Return the bytes of one execution between different devices, None if a placement is unknown."""
    sent: Counter[tuple[int, int]] = Counter()
    for record, before, after in group:
        if before.placement is None or after.placement is None:
            return None
        elements = int(np.prod(record.shape, dtype=float))
        if not elements:
            continue
        matrix = moving_elements(before.placement, after.placement, before.on, after.on)
        bytes_of_copy = record.count * (record.bytes // elements)
        for row, column in np.argwhere(matrix).tolist():
            source, target = before.on.devices[row], after.on.devices[column]
            if source != target:
                sent[source, target] += int(matrix[row, column]) * bytes_of_copy
    return tuple((source, target, size) for (source, target), size in sorted(sent.items()))
