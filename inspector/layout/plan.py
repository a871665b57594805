"""From a Layout and the model's abstract arrays to a Snapshot, at once: nothing is compiled or allocated.

This is what the page redraws at every change of mesh or rules. The same placement is computed by JAX
itself when the layout is run, and the tests hold the two against each other.
"""

from __future__ import annotations

import functools
import math
from datetime import UTC, datetime

from inspector.core import rules, sharding
from inspector.core.abstract import AbstractArray, AbstractState
from inspector.core.errors import InvalidInput
from inspector.core.rules import nnx
from inspector.core.snapshot import (
    Array,
    Finding,
    Mesh,
    Snapshot,
    Source,
    Spec,
)
from inspector.layout import Layout

INDIVISIBLE = "indivisible"
NOT_PROPAGATED = "not-propagated"


def plan(layout: Layout, state: AbstractState) -> Snapshot:
    """The Snapshot of kind `plan`: every array placed by its names and the layout's rules.

    A dimension that its mesh axes do not divide is a finding with code `indivisible`, whose `extra`
    names the logical axis; the array's shard shape and bytes per device are then not known.
    """
    mesh = layout.mesh()
    spec_of = functools.partial(_spec, layout, state)
    arrays = [_place(array, spec_of(array), state, mesh) for array in state.arrays]
    findings = [
        finding
        for array in arrays
        for finding in _indivisible(array, mesh)
        if array.spec is not None
    ]
    return Snapshot(
        source=Source("plan", "plan", now(), dict(state.versions)),
        layout=layout.to_json(),
        mesh=mesh,
        arrays=tuple(arrays),
        findings=tuple(findings),
    )


def now() -> str:
    """The present moment in ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def _spec(layout: Layout, state: AbstractState, array: AbstractArray) -> Spec:
    if array.names is None:
        return (None,) * len(array.shape)
    if state.names == "mesh":
        for refusal in nnx.refusals(array.names, layout.mesh()):
            raise InvalidInput(f"{array.path}: {refusal}")
        return array.names
    names = _logical_axes(array)
    try:
        if layout.entry.rules_semantics == "linen":
            return rules.partition_spec(names, layout.rules)
        spec = nnx.partition_spec(names, layout.rules)
    except ValueError as error:  # of the names that a person's own model has
        raise InvalidInput(f"{array.path}: {error}") from None
    for refusal in nnx.refusals(spec, layout.mesh()):
        raise InvalidInput(f"{array.path} as nnx reads the rules: {refusal}")
    return spec


def _logical_axes(array: AbstractArray) -> tuple[str | None, ...]:
    return tuple(names[0] if names else None for names in array.names or ())


def _place(array: AbstractArray, spec: Spec, state: AbstractState, mesh: Mesh) -> Array:
    ways = sharding.ways_per_dimension(spec, mesh)
    each = [divmod(size, parts) for size, parts in zip(array.shape, ways, strict=True)]
    fits = not any(rest for _, rest in each)
    shard_shape = tuple(size for size, _ in each) if fits else None
    return Array(
        path=array.path,
        group=array.group,
        shape=array.shape,
        dtype=array.dtype,
        logical_axes=_logical_axes(array) if state.names == "logical" and array.names else None,
        spec=spec,
        shard_shape=shard_shape,
        bytes=math.prod(array.shape) * array.itemsize,
        bytes_per_device=math.prod(shard_shape) * array.itemsize
        if shard_shape is not None
        else None,
        replicas=mesh.size // math.prod(ways) if fits else None,
    )


def _indivisible(array: Array, mesh: Mesh) -> list[Finding]:
    found = []
    for uneven in sharding.indivisible(array.shape or (), array.spec or (), mesh):
        logical_axis = array.logical_axes[uneven.dimension] if array.logical_axes else None
        found.append(
            Finding(
                level="error",
                code=INDIVISIBLE,
                array=array.path,
                message=f"{uneven.text(logical_axis)} in {array.path}",
                extra={"logical_axis": logical_axis, "dimension": uneven.dimension},
            )
        )
    return found
