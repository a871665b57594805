"""Mesh axes over which a step sends more bytes of activations than FSDP would send of parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from inspector.checks.audit.context import AuditContext, finding
from inspector.compiled.collective_roles import in_optimizer
from inspector.compiled.op_name import parse_op_name
from inspector.core.formatting import and_text, counted
from inspector.core.snapshot import Collective, Finding
from inspector.core.totals import STATE_GROUPS
from inspector.core.traffic import parts_of, wire_bytes_of_run
from inspector.machines.evidence import evidence_of

CODE = "collectives-larger-than-parameters"

_STEP = "train_step"
# FSDP gathers each parameter for the forward and for the backward pass, and reduce-scatters its gradient.
_FSDP_MOVES = 3


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one note per mesh axes over which activations send more bytes than FSDP would.

    Collectives that move train state or gradients do not count, so FSDP gathers never do. Others of the same
    module over the same axes do not count either: the compiler can split a gather into parts whose arrays
    cannot be followed. Nor does a collective whose arrays are unknown.
    """
    program = context.snapshot.program(_STEP)
    groups = {array.path: array.group for array in context.snapshot.arrays}
    whole = (program.collectives if program else None) or ()
    every = [part for collective in whole for part in parts_of(collective)]
    with_state = {
        (collective.mesh_axes, module)
        for collective in every
        if not _moves_activations(collective, groups)
        for module in _modules(collective)
    }
    by_axes: dict[tuple[str, ...], list[Collective]] = defaultdict(list)
    for collective in every:
        if not collective.mesh_axes or not _moves_activations(collective, groups):
            continue
        if not any((collective.mesh_axes, module) in with_state for module in _modules(collective)):
            by_axes[collective.mesh_axes].append(collective)
    for axes, collectives in by_axes.items():
        sent = wire_bytes_of_run(*collectives)
        gathered = _gathered(context, axes)
        ways = context.mesh.ways(axes)
        by_fsdp = _FSDP_MOVES * gathered * (ways - 1) // ways
        if sent is None or not gathered or sent <= max(by_fsdp, context.least):
            continue
        executions = sum(
            {
                (collective.computation, collective.name): collective.executions or 0
                for collective in collectives
            }.values()
        )
        # For other machines, the same program sends other bytes.
        machine = evidence_of(context.snapshot, program, None).machine if context.snapshot.propagated else ""
        on = f" for {machine}" if machine else ""
        message = (
            f"A train step{on} sends {context.amount(sent)} of activations from each device over mesh axis "
            f"{and_text(axes)} in {counted(executions, 'collective')}. FSDP over it would send about "
            f"{context.amount(by_fsdp)}: it gathers the parameters, {context.amount(gathered)}, forward and "
            "backward, and reduce-scatters their gradients. A smaller batch per device or fewer devices on "
            "this axis also help."
        )
        yield finding("note", CODE, message, axes=axes, wire_bytes=sent)


def _moves_activations(collective: Collective, groups: Mapping[str, str]) -> bool:
    """Return whether the collective is known to move no train state and no gradients.

    A collective of a compiled program lists the parameters that it gathers or whose gradients it reduces.
    """
    if collective.arrays is None or in_optimizer(collective):
        return False
    return not any(
        groups.get(path, path.partition("/")[0]) in (*STATE_GROUPS, "gradient") for path in collective.arrays
    )


def _modules(collective: Collective) -> set[str]:
    return {op_name.module for op_name in parse_op_name(collective.op_name)}


def _gathered(context: AuditContext, axes: tuple[str, ...]) -> int:
    """Return the per-device bytes of the parameters sharded over `axes`, after an all-gather over them."""
    total = 0
    for array in context.of_group("params"):
        used = {axis for entry in array.spec or () for axis in entry or ()} & set(axes)
        if used:
            total += (array.bytes_per_device or 0) * context.mesh.ways(tuple(used))
    return total
