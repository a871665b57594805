"""MaxText's goldens as Snapshots, made here by reading the JSON alone, so that no reader is needed."""

from __future__ import annotations

import json
import math
from pathlib import Path

from inspector.records.snapshot import Array, Mesh, MeshAxis, Snapshot, Source

GROUPS = {".step": "other", ".params": "params", ".opt_state": "opt_state"}


def read(folder: Path) -> Snapshot:
    """The Snapshot of one folder; dtypes are not in the file, so that bytes are not known."""
    named = json.loads((folder / "named_shardings.json").read_text())
    logical = json.loads((folder / "logical_shardings.json").read_text())
    mesh = next(iter(named.values()))["mesh"]
    sizes = mesh["shape"]
    arrays = []
    for key, entry in named.items():
        shape = tuple(entry["shape"])
        spec = [
            (one,) if isinstance(one, str) else tuple(one) if one else None for one in entry["partition_spec"]
        ]
        spec += [None] * (len(shape) - len(spec))
        names = list(logical[key]["partition_spec"])
        names += [None] * (len(shape) - len(names))
        ways = [math.prod(sizes[name] for name in axes or ()) for axes in spec]
        arrays.append(
            Array(
                path=key.replace("['", "").replace("']", "").removeprefix("."),
                group=GROUPS[key.split("/")[0]],
                shape=shape,
                dtype="unknown",
                logical_axes=tuple(names),
                spec=tuple(spec),
                shard_shape=tuple(size // way for size, way in zip(shape, ways, strict=True)),
                replicas=math.prod(sizes.values()) // math.prod(ways),
            )
        )
    return Snapshot(
        source=Source("maxtext", None, "2026-01-01T00:00:00+00:00"),
        layout=None,
        mesh=Mesh(
            tuple(MeshAxis(name, sizes[name]) for name in mesh["axis_names"]),
            tuple(range(math.prod(sizes.values()))),
        ),
        arrays=tuple(arrays),
    )
