"""Gradients that are sharded less than their parameters, or all-reduced instead of reduce-scattered."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from inspector.audit.context import AuditContext, Ends, finding, fold_text, path_keys
from inspector.hlo.op_name import BACKWARD, parse_op_name
from inspector.records.snapshot import Array, Collective, Finding, Program, Spec
from inspector.sharding.folding import fold
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.traffic import outputs_of, parts_of, wire_bytes_of_run
from inspector.text.formatting import and_text, counted
from inspector.text.program_names import subject

ALL_REDUCED = "gradient-all-reduced"

_STEP = "train_step"


def all_reduced_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one note per mesh axis over which gradients are all-reduced instead of reduce-scattered.

    A reduce-scatter sends half of the bytes and leaves each device its part. Emulated devices and
    partitioned programs do not count: the CPU compiler forms no reduce-scatter, and after propagation the
    compiler still forms them.
    """
    program = context.snapshot.program(_STEP)
    if program is None or not knows_reductions(context):
        return
    parameters = {array.path: array for array in context.of_group("params")}
    by_axis: dict[str, dict[str, Array]] = defaultdict(dict)
    reduced: dict[str, list[Collective]] = defaultdict(list)
    for collective in itertools.chain.from_iterable(map(parts_of, program.collectives or ())):
        moved = [parameters[path] for path in outputs_of(collective) if path in parameters]
        if collective.op != "all-reduce" or not moved:
            continue
        for axis in collective.mesh_axes or ():
            sharded = {a.path: a for a in moved if any(axis in (axes or ()) for axes in a.spec or ())}
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
        yield finding("note", ALL_REDUCED, message, folds=folds, remedy=remedy, axes=(axis,), wire_bytes=sent)


def knows_reductions(context: AuditContext) -> bool:
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


CODE = "gradient-sharding-lost"
_MOST_NAMES = 3


@dataclass(frozen=True)
class LostGradient:
    """A gradient among the results of a program, and its parameter.

    spec: the spec of the gradient. axes: the mesh axes that shard the parameter only.
    """

    path: str
    parameter: Array
    spec: Spec
    axes: tuple[str, ...]


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per program that returns gradients without a mesh axis of their parameters."""
    for program in context.programs:
        lost = lost_of(program, context)
        saved = sum(_more(lost_sharding, context) for lost_sharding in lost)
        if not lost or saved < context.least:
            continue
        axes = tuple(dict.fromkeys(axis for lost_sharding in lost for axis in lost_sharding.axes))
        lost = sorted(lost, key=lambda lost_sharding: -_more(lost_sharding, context))
        folds = fold([lost_sharding.parameter for lost_sharding in lost])
        named = and_text([fold_text(folded) for folded in folds[:_MOST_NAMES]])
        if len(folds) > _MOST_NAMES:
            named += f" and {counted(len(folds) - _MOST_NAMES, 'other')}"
        first = lost[0]
        message = (
            f"{subject(program.name)} returns the gradients of {named} without mesh axis {and_text(axes)}, "
            f"which shards the parameters: {first.path} is {spec_text(first.spec)}, "
            f"{first.parameter.path} {spec_text(first.parameter.spec)}. Each device holds "
            f"{context.amount(saved)} more, and the gradients are all-reduced over {and_text(axes)} where a "
            "reduce-scatter would do."
        )
        remedy = (
            "Constrain each weight to its sharding where it is used, with "
            "`jax.lax.with_sharding_constraint`; in a scanned layer, to the sharding of one layer. Its "
            "gradient then gets the same sharding."
        )
        yield finding("warning", CODE, message, folds=folds, saved=saved, remedy=remedy, axes=axes)


def lost_of(program: Program, context: AuditContext) -> list[LostGradient]:
    """Return the gradients of a program that are sharded less than their parameters.

    A gradient is a result with the shape and the end of the path of a parameter, in a program that
    all-reduces in its backward pass over the mesh axes that it lacks. A result that is also an array of the
    train state, such as a new parameter, is none.
    """
    reduced = {
        axis
        for collective in program.collectives or ()
        if collective.op == "all-reduce"
        and any(name.phase in BACKWARD for name in parse_op_name(collective.op_name))
        for axis in collective.axis_names
    }
    if not reduced:
        return []
    parameters = Ends()
    for path in {sharding.path for sharding in program.shardings if sharding.role == "input"}:
        array = context.by_path.get(path)
        if array is not None and array.group == "params" and array.spec is not None:
            parameters.add(array, len(array.spec))
    lost = []
    for result in program.shardings:
        if result.role != "output" or result.path in context.state_paths or result.compiled is None:
            continue
        count, parameter = parameters.longest(result.path, len(result.compiled))
        if parameter is None or count > 1:
            continue
        axes = _axes_less(result.compiled, parameter.spec or ())
        if axes and set(axes) <= reduced:
            lost.append(LostGradient(result.path, parameter, result.compiled, axes))
    return lost


def gradients_among_arrays(context: AuditContext) -> list[Array]:
    """Return the arrays with an unknown role that are such gradients of a program."""
    lost = {
        (path_keys(gradient.path)[-1], gradient.parameter.shape, gradient.spec)
        for program in context.snapshot.programs
        for gradient in lost_of(program, context)
    }
    return [
        array
        for array in context.of_group("other", "gradient")
        if (path_keys(array.path)[-1], array.shape, array.spec) in lost
    ]


def has_gradients(context: AuditContext) -> bool:
    """Return whether the collectives of a program with parameters are known."""
    return any(p.collectives is not None for p in context.snapshot.programs) and bool(
        context.of_group("params")
    )


def _axes_less(spec: Spec, parameter: Spec) -> tuple[str, ...]:
    """Return the mesh axes that only the parameter uses; none if the other spec differs in another way."""
    lacking: list[str] = []
    for own, expected in zip(spec or (), parameter or (), strict=True):
        own, expected = own or (), expected or ()
        kept = tuple(axis for axis in expected if axis in own)
        if kept != own:
            return ()
        lacking += [axis for axis in expected if axis not in own]
    return tuple(lacking)


def _more(lost: LostGradient, context: AuditContext) -> int:
    """Return the bytes by which the gradient exceeds its parameter on each device, if it has its dtype."""
    held = lost.parameter.bytes_per_device or 0
    return held * context.mesh.ways(lost.axes) - held
