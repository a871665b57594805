"""Gradients that are all-reduced over a mesh axis that shards their parameter."""

import itertools
from collections import defaultdict
from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding, fold_text
from inspector.core.folding import fold
from inspector.core.formatting import and_text
from inspector.core.snapshot import Array, Collective, Finding
from inspector.core.traffic import outputs_of, parts_of, wire_bytes_of_run

CODE = "gradient-all-reduced"

_STEP = "train_step"


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one note per mesh axis over which gradients are all-reduced instead of reduce-scattered.

    A reduce-scatter sends half of the bytes and leaves each device its part. Emulated devices and
    partitioned programs do not count: the CPU compiler forms no reduce-scatter, and after propagation the
    compiler still forms them.
    """
    program = context.snapshot.program(_STEP)
    if program is None or not applies(context):
        return
    parameters = {array.path: array for array in context.of_group("params")}
    by_axis: dict[str, dict[str, Array]] = defaultdict(dict)
    reduced: dict[str, list[Collective]] = defaultdict(list)
    for collective in itertools.chain.from_iterable(map(parts_of, program.collectives or ())):
        moved = [parameters[path] for path in outputs_of(collective) if path in parameters]
        if collective.op != "all-reduce" or not moved:
            continue
        for axis in collective.mesh_axes or ():
            sharded = {array.path: array for array in moved if _is_sharded(array, axis)}
            if sharded:
                by_axis[axis] |= sharded
                reduced[axis].append(collective)
    for axis, arrays in by_axis.items():
        sent = wire_bytes_of_run(*reduced[axis])
        if sent is None or sent // 2 < context.least:
            continue
        folds = fold(sorted(arrays.values(), key=lambda array: -(array.bytes or 0)))
        named = and_text([fold_text(fold) for fold in folds[:3]])
        message = (
            f"A train step all-reduces the gradient of {named} over mesh axis {axis}, which shards "
            f"{'this parameter' if len(arrays) == 1 else 'these parameters'}: {context.amount(sent)} leave "
            "each device. A reduce-scatter sends half."
        )
        on_tpus = (context.mesh.device_kind or "").startswith("TPU")
        remedy = f"{_REMEDY} {_ON_TPUS}" if on_tpus else _REMEDY
        yield finding("note", CODE, message, folds=folds, remedy=remedy, axes=(axis,), wire_bytes=sent)


def applies(context: AuditContext) -> bool:
    """Return whether a compiler that forms reduce-scatters has compiled the train step."""
    program = context.snapshot.program(_STEP)
    emulated = context.mesh.device_kind in (None, "cpu")
    known = program is not None and program.collectives is not None
    return known and program is not None and not program.before_compile and not emulated


_REMEDY = (
    "Leave out a sharding constraint that replicates the parameter before its use; the tab Improve shows "
    "what each constraint costs. If there is none, constrain the gradient to the sharding of the parameter."
)
# Measured with libtpu 0.0.42, see `later_passes.reductions`.
_ON_TPUS = (
    "The compiler for TPUs forms a reduce-scatter only if each device keeps whole tiles, as 8 rows or 128 "
    "columns, and not over all devices of a square or three-dimensional slice."
)


def _is_sharded(array: Array, axis: str) -> bool:
    return any(axis in (axes or ()) for axes in array.spec or ())
