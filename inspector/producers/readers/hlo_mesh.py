"""The mesh that a program's text itself names: `mesh['data'=2,'model'=4] {'model'}`.

XLA writes groups of devices so where it knows a mesh, mostly with axes of its own naming (`axis_0`), which
differ from one instruction to the next and are those of no mesh that anybody chose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from inspector.compiled.hlo.module import Module
from inspector.core.snapshot import Mesh, MeshAxis
from inspector.producers.readers import limits

_MESH = re.compile(r"^mesh\[([^\]]*)\](?!.*device_ids)", re.S)
_AXIS = re.compile(r"['\"]([^'\"=]+)['\"]=(\d{1,9})")
_ANONYMOUS = re.compile(r"_?axis_\d+")


def mesh_of(modules: Iterable[Module]) -> Mesh | None:
    """The one mesh that all groups with named axes are written on; None where there is none, or several."""
    found: set[tuple[tuple[str, int], ...]] = set()
    for module in modules:
        for computation in module.computations:
            for instruction in computation.instructions:
                if "mesh[" not in instruction.attributes_text:
                    continue
                groups = instruction.attributes.get("replica_groups", "")
                match = _MESH.match(groups.strip())
                axes = _AXIS.findall(match[1]) if match else []
                if axes and not any(_ANONYMOUS.fullmatch(name) for name, _ in axes):
                    found.add(tuple((name, int(size)) for name, size in axes))
    if len(found) != 1:
        return None
    (axes,) = found
    size = math.prod(size for _, size in axes)
    names = {name for name, _ in axes}
    if not 0 < size <= limits.MOST_DEVICES or len(names) != len(axes):
        return None
    return Mesh(tuple(MeshAxis(name, one) for name, one in axes), tuple(range(size)))
