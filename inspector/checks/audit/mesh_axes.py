"""Mesh axes that shard nothing, that shard only the batch, or that have size 1."""

from __future__ import annotations

from inspector.checks.audit.context import AuditContext, finding, finest_split, names_text
from inspector.core.formatting import counted
from inspector.core.snapshot import Array, Finding, MeshAxis
from inspector.core.totals import STATE_GROUPS

UNUSED = "unused-mesh-axis"
REPEATED = "state-repeated-over-axis"
SIZE_1 = "size-1-mesh-axis"
CODES = (UNUSED, REPEATED, SIZE_1)

# Data parallelism is a choice, so a note about it needs this share of the train state.
_LEAST_REPEATED_SHARE = 0.10
_PLACED = (*STATE_GROUPS, "batch", "output", "activation")


def findings(context: AuditContext) -> list[Finding]:
    """Return one finding per mesh axis that repeats the train state, and one for all axes of size 1."""
    larger = [axis for axis in context.mesh.axes if axis.size > 1]
    found = [one for axis in larger if (one := _of_axis(context, axis)) is not None]
    return found + _of_size_1(context)


def _of_axis(context: AuditContext, axis: MeshAxis) -> Finding | None:
    placed = [array for array in context.snapshot.arrays if array.group in _PLACED]
    state = context.of_group(*STATE_GROUPS)
    if not placed or any(a.spec is None for a in placed if a.group in STATE_GROUPS):
        return None  # an array without a spec may use the axis
    using = any(_uses(array, axis.name) for array in placed)
    # Arrays that are replicated on all devices have separate findings.
    repeated = [
        array
        for array in state
        if not _uses(array, axis.name) and not (using and context.is_replicated(array))
    ]
    saved = sum(_saved(context, array, axis.name) for array in repeated)
    if not using:
        could = f" Sharding the train state over it saves up to {context.amount(saved)} per device."
        return finding(
            "warning",
            UNUSED,
            f"Mesh axis {axis.name} shards nothing, so {axis.size} devices hold and compute the same."
            + (could if saved else ""),
            saved=saved or None,
            remedy=f"Use {axis.name} in a {context.decided_by}, or remove it from the mesh.",
            axes=[axis.name],
        )
    if saved < max(context.least, _LEAST_REPEATED_SHARE * context.state_bytes):
        return None
    held = context.amount(sum(array.bytes_per_device or 0 for array in repeated))
    plain = "" if any(_uses(array, axis.name) for array in state) else " (plain data parallelism)"
    return finding(
        "note",
        REPEATED,
        f"Mesh axis {axis.name}: {axis.size} devices hold the same {held} of train state in "
        f"{counted(len(repeated), 'array')}{plain}. Sharding it over {axis.name} as well, as FSDP does, "
        f"saves up to {context.amount(saved)} per device, but parameters must then be gathered.",
        saved=saved,
        remedy=f"Shard a large dimension of the parameters over {axis.name} with a {context.decided_by}.",
        axes=[axis.name],
    )


def _of_size_1(context: AuditContext) -> list[Finding]:
    named = {axis for _, axes in context.rules or () for axis in axes}
    for array in context.snapshot.arrays:
        named.update(axis for axes in array.spec or () for axis in axes or ())
    trivial = [name for name in context.mesh.axis_names if name in named & context.trivial]
    if not trivial:
        return []
    noun = "axis" if len(trivial) == 1 else "axes"
    message = f"Rules or PartitionSpecs use mesh {noun} {names_text(trivial)} of size 1: they shard nothing."
    return [finding("note", SIZE_1, message, axes=trivial)]


def _uses(array: Array, axis: str) -> bool:
    return any(axis in (axes or ()) for axes in array.spec or ())


def _saved(context: AuditContext, array: Array, axis: str) -> int:
    if array.spec is None or array.bytes_per_device is None:
        return 0
    ways, _ = finest_split(array.shape, array.spec, context.mesh, (axis,))
    return array.bytes_per_device - array.bytes_per_device // ways
