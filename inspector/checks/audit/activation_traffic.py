"""Mesh axes over which a step moves more activations than it would move parameters."""

from __future__ import annotations

from collections import defaultdict

from inspector.checks.audit.context import AuditContext, finding, names_text
from inspector.core.formatting import counted
from inspector.core.snapshot import Collective, Finding
from inspector.core.totals import STATE_GROUPS

CODE = "collectives-larger-than-parameters"

_STEP = "train_step"


def findings(context: AuditContext) -> list[Finding]:
    """Return one note per mesh axes over which activations move more bytes than gathered parameters have.

    Collectives that move train state or gradients do not count, so FSDP gathers never do. A collective
    whose arrays are unknown does not count either.
    """
    program = context.snapshot.program(_STEP)
    groups = {array.path: array.group for array in context.snapshot.arrays}
    by_axes: dict[tuple[str, ...], list[Collective]] = defaultdict(list)
    for one in (program.collectives if program else None) or ():
        if one.mesh_axes and _moves_activations(one, groups):
            by_axes[one.mesh_axes].append(one)
    found = []
    for axes, collectives in by_axes.items():
        payload = _payload(collectives)
        gathered = _gathered(context, axes)
        if payload is None or not gathered or payload <= max(gathered, context.least):
            continue
        executions = sum(one.executions or 0 for one in collectives)
        found.append(
            finding(
                "note",
                CODE,
                f"A train step moves {context.amount(payload)} of activations per device over mesh axis "
                f"{names_text(axes)} in {counted(executions, 'collective')}. The parameters sharded over it "
                f"are {context.amount(gathered)} after an all-gather, so FSDP would move less. A smaller "
                "batch per device or fewer devices on this axis also help.",
                axes=list(axes),
                payload_bytes=payload,
            )
        )
    return found


def _moves_activations(collective: Collective, groups: dict[str, str]) -> bool:
    """Return whether the collective is known to move no train state and no gradients.

    A collective of a compiled program lists the parameters that it gathers or whose gradients it reduces.
    """
    return collective.arrays is not None and not any(
        groups.get(path, path.partition("/")[0]) in (*STATE_GROUPS, "gradient")
        for path in collective.arrays
    )


def _payload(collectives: list[Collective]) -> int | None:
    """Return the bytes of all executions in one step, or None if unknown."""
    total = 0
    for one in collectives:
        if one.executions is None or one.payload_bytes is None:
            return None
        total += one.executions * one.payload_bytes
    return total


def _gathered(context: AuditContext, axes: tuple[str, ...]) -> int:
    """Return the per-device bytes of the parameters sharded over `axes`, after an all-gather over them."""
    total = 0
    for array in context.of_group("params"):
        used = {axis for entry in array.spec or () for axis in entry or ()} & set(axes)
        if used:
            total += (array.bytes_per_device or 0) * context.mesh.ways(tuple(used))
    return total
