"""All checks of the audit, and what they find in a Snapshot, ranked."""

from __future__ import annotations

from dataclasses import replace

from inspector.checks.audit import (
    batch,
    dropped,
    imbalance,
    mesh_axes,
    optimizer,
    readings,
    replicated,
    rule_use,
    traffic,
    uneven,
)
from inspector.checks.audit.examined import examine
from inspector.core.snapshot import Finding, Snapshot

CHECKS = (
    dropped,
    replicated,
    optimizer,
    mesh_axes,
    batch,
    uneven,
    imbalance,
    rule_use,
    traffic,
    readings,
)

# Every code that the audit gives; `indivisible` is also given by plans.
CODES = frozenset(
    {
        dropped.CODE,
        replicated.PARAMETER,
        replicated.MOMENT,
        optimizer.NOT_FOLLOWING,
        optimizer.UNEXPLAINED,
        mesh_axes.UNUSED,
        mesh_axes.REPEATED,
        mesh_axes.SIZE_1,
        batch.CODE,
        uneven.UNEVEN,
        uneven.PADDED,
        imbalance.CODE,
        rule_use.ABSENT_AXIS,
        rule_use.NEVER_USED,
        traffic.CODE,
        readings.CODE,
    }
)

_LEVELS = ("error", "warning", "note")


def audit(found: Snapshot) -> tuple[Finding, ...]:
    """All findings about a Snapshot: errors first, then by the bytes that mending them saves a device.

    Nothing is said of what is unknown: without a mesh nothing at all, without rules nothing of rules. Where
    no type is known, findings tell elements and no bytes.
    """
    if found.mesh is None:
        return ()
    examined = examine(found, found.mesh)
    ranked = sorted(
        (one for check in CHECKS for one in check.findings(examined)),
        key=lambda one: (one.level != "error", -(one.bytes or 0), _LEVELS.index(one.level)),
    )
    if examined.in_elements:
        return tuple(replace(one, bytes=None) for one in ranked)
    return tuple(ranked)


def audited(found: Snapshot) -> Snapshot:
    """The Snapshot with the audit's findings after its own; those of an earlier audit are replaced."""
    own = tuple(one for one in found.findings if one.code not in CODES)
    return replace(found, findings=own + audit(replace(found, findings=own)))


def questions() -> tuple[str, ...]:
    """What is checked, in words."""
    return tuple(check.WHAT for check in CHECKS)
