"""The table of all checks, and the ranked findings that they return for a Snapshot."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from inspector.checks.audit import (
    collective_uses,
    donation,
    dropped_axis,
    gathering_constraints,
    gradient_reduction,
    idle_devices,
    indivisible_arrays,
    lost_gradients,
    mesh_axes,
    optimizer_state,
    pipeline_bubble,
    programs,
    refused_programs,
    rematerialized,
    replicated,
    small_messages,
    too_large,
    uneven_shards,
    unmoved_weights,
    unused_rules,
)
from inspector.checks.audit.context import LEAST_SHARE, AuditContext, with_arrays_of_other_meshes
from inspector.checks.audit.ranking import rounded, weight
from inspector.core.meshes import one_mesh_text
from inspector.core.once import once_per_snapshot
from inspector.core.snapshot import Finding, Mesh, Snapshot
from inspector.layout.plan import merged_by_logical_axis
from inspector.machines import targets
from inspector.machines.hardware import Chip


@dataclass(frozen=True)
class Check:
    """One check of the audit.

    question: the faults that it finds, as a noun phrase. codes: the codes of its findings.
    findings: returns its findings. Every check needs a mesh; it returns none if other facts are unknown.
    fixable: whether a change of rules or PartitionSpecs can fix its findings.
    applies: whether the Snapshot has the facts for the check. If not, it finds nothing and checks nothing.
    """

    question: str
    codes: tuple[str, ...]
    findings: Callable[[AuditContext], Iterable[Finding]]
    fixable: bool = True
    applies: Callable[[AuditContext], bool] = lambda _: True


def _has_rules(context: AuditContext) -> bool:
    return context.rules is not None


def _has_state(context: AuditContext) -> bool:
    return bool(context.of_group(*replicated.GROUPS))


CHECKS = (
    Check(
        "programs that JAX refuses on explicit mesh axes",
        (refused_programs.CODE,),
        refused_programs.findings,
        fixable=False,
        applies=lambda context: bool(context.snapshot.programs),
    ),
    Check(
        "logical axes dropped for another axis",
        (dropped_axis.CODE,),
        dropped_axis.findings,
        applies=_has_rules,
    ),
    Check(
        "replicated parameters, optimizer state and other arrays",
        replicated.CODES,
        replicated.findings,
        applies=_has_state,
    ),
    Check(
        "replicated arrays that no axis of the mesh divides",
        (indivisible_arrays.CODE,),
        indivisible_arrays.findings,
        fixable=False,
        applies=_has_state,
    ),
    Check(
        "optimizer state sharded unlike its parameters",
        (optimizer_state.NOT_FOLLOWING,),
        optimizer_state.findings,
        applies=lambda context: bool(context.of_group("params")),
    ),
    Check(
        "mesh axes that shard nothing or only the batch",
        (mesh_axes.UNUSED, mesh_axes.REPEATED),
        mesh_axes.findings,
    ),
    Check(
        "a batch that is not sharded",
        (mesh_axes.BATCH,),
        mesh_axes.batch_findings,
        applies=lambda context: bool(context.of_group("batch")),
    ),
    # `indivisible` is also a finding of plans, so an audit does not replace it.
    Check("uneven and padded shards", (uneven_shards.UNEVEN, uneven_shards.PADDED), uneven_shards.findings),
    Check("devices that hold more than others", (uneven_shards.IMBALANCE,), uneven_shards.imbalance_findings),
    Check(
        "unused rules, and rules with unknown mesh axes",
        (unused_rules.ABSENT_AXIS, unused_rules.NEVER_USED),
        unused_rules.findings,
        applies=_has_rules,
    ),
    Check(
        "rules of a model that are left out, because the mesh lacks their axes",
        (unused_rules.LEFT_OUT,),
        unused_rules.left_out_findings,
        fixable=False,
        applies=_has_rules,
    ),
    Check(
        "gradients that are all-reduced instead of reduce-scattered",
        (gradient_reduction.CODE,),
        gradient_reduction.findings,
        fixable=False,
        applies=gradient_reduction.applies,
    ),
    Check(
        "gradients that lost the sharding of their parameters",
        (lost_gradients.CODE,),
        lost_gradients.findings,
        fixable=False,
        applies=lost_gradients.has_gradients,
    ),
    Check(
        "donated arguments whose memory no output uses",
        (donation.UNUSED,),
        donation.findings,
        fixable=False,
        applies=donation.applies,
    ),
    Check(
        "results that are replicated, because mesh axes do not divide them",
        (programs.UNEVEN_RESULT,),
        programs.uneven_findings,
        fixable=False,
        applies=programs.has_text,
    ),
    Check(
        "large constants in programs",
        (programs.CONSTANT,),
        programs.constant_findings,
        fixable=False,
        applies=programs.has_text,
    ),
    Check(
        "caches that move in each run",
        (programs.CACHE,),
        programs.cache_findings,
        fixable=False,
        applies=programs.has_caches,
    ),
    Check(
        "weights that are gathered as a whole stack of layers, or a whole table",
        (programs.WHOLE_STACK, programs.WHOLE_TABLE),
        programs.whole_findings,
        fixable=False,
        applies=programs.has_weights,
    ),
    Check(
        "gathered values that stay in memory until the backward pass",
        (programs.KEPT,),
        programs.kept_findings,
        fixable=False,
        applies=programs.has_kept,
    ),
    Check(
        "constraints because of which an operand is gathered and its product repeated",
        (gathering_constraints.CODE,),
        gathering_constraints.findings,
        fixable=False,
        applies=gathering_constraints.applies,
    ),
    Check(
        "work that several devices repeat",
        (programs.REPEATED_WORK,),
        programs.work_findings,
        fixable=False,
        applies=programs.has_work,
    ),
    Check(
        "collectives in the condition of a loop",
        (collective_uses.CONDITION,),
        collective_uses.condition_findings,
        fixable=False,
        applies=collective_uses.has_collectives,
    ),
    Check(
        "arrays that are gathered for a callback on the host",
        (collective_uses.CALLBACK,),
        collective_uses.callback_findings,
        fixable=False,
        applies=collective_uses.has_collectives,
    ),
    Check(
        "sums that are reduced in each iteration of a loop",
        (collective_uses.ACCUMULATION,),
        collective_uses.accumulation_findings,
        fixable=False,
        applies=collective_uses.has_collectives,
    ),
    Check(
        "values that XLA gathers because it finds no way between two shardings",
        (rematerialized.CODE,),
        rematerialized.findings,
        fixable=False,
        applies=rematerialized.applies,
    ),
    Check(
        "many small messages to neighbors",
        (small_messages.CODE,),
        small_messages.findings,
        fixable=False,
        applies=collective_uses.has_collectives,
    ),
    Check(
        "the bubble of a pipeline",
        (pipeline_bubble.CODE,),
        pipeline_bubble.findings,
        fixable=False,
        applies=pipeline_bubble.applies,
    ),
    Check(
        "rules that Linen and nnx read differently",
        (unused_rules.DISAGREE,),
        unused_rules.differing_findings,
        fixable=False,
        applies=_has_rules,
    ),
)


@dataclass(frozen=True)
class SnapshotCheck:
    """A check that compares the meshes of a Snapshot, or needs none. Its attributes are those of `Check`."""

    question: str
    codes: tuple[str, ...]
    findings: Callable[[Snapshot], Iterable[Finding]]
    applies: Callable[[Snapshot], bool]


SNAPSHOT_CHECKS = (
    SnapshotCheck("more memory than a device has", (too_large.CODE,), too_large.findings, too_large.applies),
    SnapshotCheck(
        "devices that hold and compute nothing",
        (idle_devices.CODE,),
        idle_devices.findings,
        idle_devices.applies,
    ),
    SnapshotCheck(
        "weights that did not move to other devices with the rest of their tree",
        (unmoved_weights.CODE,),
        unmoved_weights.findings,
        unmoved_weights.applies,
    ),
)
CODES = frozenset(code for check in (*CHECKS, *SNAPSHOT_CHECKS) for code in check.codes)

_LEAST_RECORDED = 2**16  # bytes of a finding of a recorded job below the level error
_LEVELS = ("error", "warning", "note")


def audit(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return all findings: errors first, then by the share of a device's arrays or work that a fix saves.

    Without a mesh, only the checks that need none are made. If no dtype is known, messages give elements and
    no bytes. With several meshes, the arrays and programs on each are audited alone, and findings say which
    mesh it is.
    """
    ranked = [
        (_rank(finding, snapshot), finding)
        for check in SNAPSHOT_CHECKS
        for finding in check.findings(snapshot)
    ]
    unequal: list[tuple[int, frozenset[int], int]] = []  # size, devices, position in `ranked`
    least = 0.0
    if snapshot.most_alive_bytes is not None:
        known = [program.memory for program in snapshot.programs if program.memory is not None]
        needed = (memory.peak or (memory.arguments or 0) + (memory.temporaries or 0) for memory in known)
        least = max(LEAST_SHARE * max(snapshot.most_alive_bytes, *needed, 0), _LEAST_RECORDED)
    views = snapshot.on_each_mesh()
    for number, on_mesh in enumerate(views, start=1):
        mesh = on_mesh.mesh
        if mesh is None or (number > 1 and not on_mesh.arrays and not on_mesh.programs):
            continue
        sharing = [view for view in views if view is not on_mesh and _share_devices(view, mesh)]
        context = AuditContext.of(with_arrays_of_other_meshes(on_mesh, sharing), mesh)
        for finding in (finding for check in CHECKS for finding in check.findings(context)):
            if finding.level != "error" and finding.bytes is not None and finding.bytes < least:
                continue
            # A program on another mesh of these devices may use all of them.
            if finding.code == mesh_axes.UNUSED and any(view.programs for view in sharing):
                continue
            if finding.code == uneven_shards.IMBALANCE:
                unequal.append((mesh.size, frozenset(mesh.devices), len(ranked)))
            rank = _rank(finding, on_mesh)
            if snapshot.other_meshes:
                where = f"mesh {number} ({one_mesh_text(mesh)})" if mesh.axes else one_mesh_text(mesh)
                message = f"On {where}: {finding.message}"
                finding = replace(finding, message=message)
            if context.in_elements:
                finding = replace(finding, bytes=None)
            ranked.append((rank, finding))
    for place in sorted(_repeated(unequal), reverse=True):
        del ranked[place]
    return tuple(finding for _, finding in sorted(ranked, key=lambda pair: pair[0]))


def _rank(finding: Finding, snapshot: Snapshot) -> tuple[Any, ...]:
    # Of findings that save the same, a warning is the cause of what a note counts.
    share = rounded(weight(finding, snapshot))
    return finding.level != "error", -share, _LEVELS.index(finding.level), -(finding.bytes or 0)


def _repeated(unequal: list[tuple[int, frozenset[int], int]]) -> Iterator[int]:
    """Yield the position of each finding about devices of a larger mesh with such a finding.

    The arrays of all meshes of a device count, so both findings are about the same bytes.
    """
    kept: set[int] = set()
    for _, devices, place in sorted(unequal, key=lambda one: (-one[0], one[2])):
        if kept.isdisjoint(devices):
            kept |= devices
        else:
            yield place


def _share_devices(other: Snapshot, mesh: Mesh) -> bool:
    return other.mesh is not None and not set(other.mesh.devices).isdisjoint(mesh.devices)


def audited(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with the audit's findings after its own. An earlier audit is replaced."""
    own = tuple(finding for finding in snapshot.findings if finding.code not in CODES)
    return replace(snapshot, findings=own + audit(replace(snapshot, findings=own)))


def ranked(snapshot: Snapshot, chip: Chip | None = None) -> tuple[Finding, ...]:
    """Return the findings of a Snapshot and its audit. Equal ones of several arrays are one.

    chip: the chosen chip of a Snapshot without one.
    """
    chosen = chip if targets.chip_for(snapshot, None) is None else None
    return (*too_large.on_chip(snapshot, chosen), *_ranked(snapshot))


@once_per_snapshot
def _ranked(snapshot: Snapshot) -> tuple[Finding, ...]:
    return merged_by_logical_axis(audited(snapshot).findings)


def questions(snapshot: Snapshot | None = None) -> tuple[str, ...]:
    """Return the faults that the audit finds, as noun phrases.

    snapshot: only those that it looks for in this Snapshot, none without a mesh.
    """
    if snapshot is None:
        return tuple(check.question for check in (*CHECKS, *SNAPSHOT_CHECKS))
    whole = [check.question for check in SNAPSHOT_CHECKS if check.applies(snapshot)]
    if snapshot.mesh is None:
        return tuple(whole)
    context = AuditContext.of(snapshot, snapshot.mesh)
    return (*(check.question for check in CHECKS if check.applies(context)), *whole)
