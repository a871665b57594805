"""The table of all checks, the ranked findings of a Snapshot, and what the audit could not check."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inspector.audit import (
    collective_uses,
    gathering_constraints,
    lost_gradients,
    mesh_axes,
    programs,
    replicated,
    small_messages,
    uneven_shards,
    unmoved_weights,
    unused_rules,
)
from inspector.audit.context import LEAST_SHARE, AuditContext, with_arrays_of_other_meshes
from inspector.layout.plan import merged_by_logical_axis
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.prediction.memory import breakdowns
from inspector.records.snapshot import Finding, Mesh, Program, Snapshot
from inspector.sharding.meshes import one_mesh_text
from inspector.sharding.once import once_per_snapshot
from inspector.sharding.totals import STATE_GROUPS, in_device_memory
from inspector.sharding.traffic import wire_bytes_of_run
from inspector.text.formatting import and_text, counted

_HALF = 2**30  # bytes that count as half of the memory, if no array is known


def weight(finding: Finding, snapshot: Snapshot) -> float:
    """Return the share of a device's arrays, work or traffic that a fix saves; 0 if it is unknown."""
    work = 1 - 1 / finding.ratio if finding.ratio and finding.ratio > 1 else 0.0
    sent = (wire_bytes_of_run(*program.collectives or ()) or 0 for program in snapshot.programs)
    traffic = min((finding.wire_bytes or 0) / max(*sent, 1, 1), 1.0)
    return max(share_of_memory(finding.bytes or 0, snapshot), work, traffic)


def rounded(share: float) -> float:
    """Return a share with three digits, so that two that nobody can tell apart are equal.

    >>> rounded(0.50146), rounded(0.50138), rounded(0.0000123)
    (0.501, 0.501, 1.23e-05)
    """
    return float(f"{share:.3g}")


def share_of_memory(size: float, snapshot: Snapshot) -> float:
    """Return bytes of one device as a share of what it holds, between 0 and 1."""
    whole = _held_bytes(snapshot)
    return size / max(whole, size) if whole and size else size / (size + _HALF)


@once_per_snapshot
def _held_bytes(snapshot: Snapshot) -> int:
    """Return the bytes of all arrays on one device, or what a program needs above it. Unknown ones are 0."""
    arrays = sum(array.bytes_per_device or 0 for array in in_device_memory(snapshot, snapshot.arrays))
    return max(arrays, *(program.needed or 0 for program in breakdowns(snapshot)), 0)


_MOST_NAMES = 3  # in a sentence


def gaps(snapshot: Snapshot) -> tuple[str, ...]:
    """Return one sentence per kind of fact that is missing; empty if every check has its facts."""
    if snapshot.mesh is None:
        return ("The mesh is unknown, so shardings are not checked.",)
    said = []
    if not snapshot.programs:
        unknown = "Activations, gradients and collectives are unknown, so they are not checked."
        if snapshot.source.kind == "plan":
            unknown += " They are known once the programs are partitioned, compiled or run."
        said.append(unknown)
    without = [
        program.name
        for program in snapshot.programs
        if program.collectives is None and program.sharding_error is None
    ]
    if without:
        said.append(f"The collectives of {_listed(without)} are unknown, so they are not checked.")
    held = [array for array in snapshot.arrays if array.group in (*STATE_GROUPS, "cache", "batch")]
    nowhere = [a.path for a in held if a.spec is None and a.shards is None and a.bytes_per_device is None]
    if nowhere:
        said.append(
            f"The {'sharding' if len(nowhere) == 1 else 'shardings'} of {_listed(nowhere)} "
            f"{'is' if len(nowhere) == 1 else 'are'} unknown, so {counted(len(nowhere), 'array')} "
            f"{'is' if len(nowhere) == 1 else 'are'} not checked."
        )
    return tuple(said)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    if more > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {more} more"
    return and_text(names)


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
    fixable: bool = False
    applies: Callable[[AuditContext], bool] = lambda _: True


def _has_rules(context: AuditContext) -> bool:
    return context.rules is not None


def _has_state(context: AuditContext) -> bool:
    return bool(context.of_group(*replicated.GROUPS))


def _known(fact: Callable[[Program], object]) -> Callable[[AuditContext], bool]:
    """Return the question whether a fact about some program is known."""
    return lambda context: any(fact(program) is not None for program in context.snapshot.programs)


CHECKS = (
    Check(
        "programs that JAX refuses on explicit mesh axes",
        (programs.REFUSED,),
        programs.refused_findings,
        applies=lambda context: bool(context.snapshot.programs),
    ),
    Check(
        "logical axes dropped for another axis",
        (unused_rules.DROPPED_AXIS,),
        unused_rules.dropped_findings,
        fixable=True,
        applies=_has_rules,
    ),
    Check(
        "replicated parameters, optimizer state and other arrays",
        replicated.CODES,
        replicated.findings,
        fixable=True,
        applies=_has_state,
    ),
    Check(
        "replicated arrays that no axis of the mesh divides",
        (replicated.NO_AXIS_DIVIDES,),
        replicated.indivisible_findings,
        applies=_has_state,
    ),
    Check(
        "optimizer state sharded unlike its parameters",
        (replicated.NOT_FOLLOWING,),
        replicated.moment_findings,
        fixable=True,
        applies=lambda context: bool(context.of_group("params")),
    ),
    Check(
        "mesh axes that shard nothing or only the batch",
        (mesh_axes.UNUSED, mesh_axes.REPEATED),
        mesh_axes.findings,
        fixable=True,
    ),
    Check(
        "a batch that is not sharded",
        (mesh_axes.BATCH,),
        mesh_axes.batch_findings,
        fixable=True,
        applies=lambda context: bool(context.of_group("batch")),
    ),
    # `indivisible` is also a finding of plans, so an audit does not replace it.
    Check(
        "uneven and padded shards",
        (uneven_shards.UNEVEN, uneven_shards.PADDED),
        uneven_shards.findings,
        fixable=True,
    ),
    Check(
        "devices that hold more than others",
        (uneven_shards.IMBALANCE,),
        uneven_shards.imbalance_findings,
        fixable=True,
    ),
    Check(
        "unused rules, and rules with unknown mesh axes",
        (unused_rules.ABSENT_AXIS, unused_rules.NEVER_USED),
        unused_rules.findings,
        fixable=True,
        applies=_has_rules,
    ),
    Check(
        "rules of a model that are left out, because the mesh lacks their axes",
        (unused_rules.LEFT_OUT,),
        unused_rules.left_out_findings,
        applies=_has_rules,
    ),
    Check(
        "gradients that are all-reduced instead of reduce-scattered",
        (lost_gradients.ALL_REDUCED,),
        lost_gradients.all_reduced_findings,
        applies=lost_gradients.knows_reductions,
    ),
    Check(
        "gradients that lost the sharding of their parameters",
        (lost_gradients.CODE,),
        lost_gradients.findings,
        applies=lost_gradients.has_gradients,
    ),
    Check(
        "donated arguments whose memory no output uses",
        (programs.DONATION_UNUSED,),
        programs.donation_findings,
        applies=_known(lambda program: program.donation),
    ),
    Check(
        "arguments that outputs could be written over, if they were donated",
        (programs.NOT_DONATED,),
        programs.not_donated_findings,
        applies=programs.knows_donation,
    ),
    Check(
        "results that are replicated, because mesh axes do not divide them",
        (programs.UNEVEN_RESULT,),
        programs.uneven_findings,
        applies=_known(lambda program: program.large_constants),
    ),
    Check(
        "large constants in programs",
        (programs.CONSTANT,),
        programs.constant_findings,
        applies=_known(lambda program: program.large_constants),
    ),
    Check(
        "caches that move in each run",
        (programs.CACHE,),
        programs.cache_findings,
        applies=programs.has_caches,
    ),
    Check(
        "weights that are gathered as a whole stack of layers, or a whole table",
        (programs.WHOLE_STACK, programs.WHOLE_TABLE),
        programs.whole_findings,
        applies=programs.has_weights,
    ),
    Check(
        "gathered values that stay in memory until the backward pass",
        (programs.KEPT,),
        programs.kept_findings,
        applies=_known(lambda program: program.kept_gathers),
    ),
    Check(
        "constraints because of which an operand is gathered and its product repeated",
        (gathering_constraints.CODE,),
        gathering_constraints.findings,
        applies=_known(lambda program: program.conflicts),
    ),
    Check(
        "work that several devices repeat",
        (programs.REPEATED_WORK,),
        programs.work_findings,
        applies=programs.has_work,
    ),
    Check(
        "collectives in the condition of a loop",
        (collective_uses.CONDITION,),
        collective_uses.condition_findings,
        applies=collective_uses.has_collectives,
    ),
    Check(
        "arrays that are gathered for a callback on the host",
        (collective_uses.CALLBACK,),
        collective_uses.callback_findings,
        applies=collective_uses.has_collectives,
    ),
    Check(
        "sums that are reduced in each iteration of a loop",
        (collective_uses.ACCUMULATION,),
        collective_uses.accumulation_findings,
        applies=collective_uses.has_collectives,
    ),
    Check(
        "values that XLA gathers because it finds no way between two shardings",
        (gathering_constraints.REMATERIALIZED,),
        gathering_constraints.rematerialized_findings,
        applies=_known(lambda program: program.rematerializations),
    ),
    Check(
        "many small collective-permutes",
        (small_messages.CODE,),
        small_messages.findings,
        applies=collective_uses.has_collectives,
    ),
    Check(
        "the bubble of a pipeline",
        (mesh_axes.BUBBLE,),
        mesh_axes.bubble_findings,
        applies=_known(lambda program: program.pipelines),
    ),
    Check(
        "rules that Linen and nnx read differently",
        (unused_rules.DISAGREE,),
        unused_rules.differing_findings,
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
    SnapshotCheck(
        "more memory than a device has",
        (uneven_shards.TOO_LARGE,),
        uneven_shards.too_large_findings,
        uneven_shards.knows_memory,
    ),
    SnapshotCheck(
        "devices that hold and compute nothing",
        (mesh_axes.IDLE_DEVICES,),
        mesh_axes.idle_findings,
        mesh_axes.knows_devices,
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
                finding = replace(finding, message=message, mesh=number - 2 if number > 1 else None)
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
    return (*uneven_shards.on_chip(snapshot, chosen), *_ranked(snapshot))


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
