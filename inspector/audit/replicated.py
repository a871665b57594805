"""Arrays of the train state that devices hold whole, or sharded less than their parameters, and why."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from inspector.audit.context import AuditContext, Candidates, finding, fold_text, largest
from inspector.records.snapshot import Array, Finding, Spec
from inspector.sharding.folding import Fold, fold
from inspector.sharding.meshes import primes_of
from inspector.sharding.rules import ledger, nnx
from inspector.sharding.rules.rule import rule_words
from inspector.sharding.sharding_text import spec_text
from inspector.text.formatting import and_text, counted, logical_text

NOT_FOLLOWING = "optimizer-not-following"
_MOMENT_REMEDY = (
    "Give the optimizer state the shardings of its parameters, for example as out_shardings of the jitted "
    "init."
)


def moment_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield moments that are sharded less than their parameter."""
    by_parameter: dict[str, list[tuple[int, Array]]] = defaultdict(list)
    for moment in context.of_group("opt_state"):
        parameter = context.parameters.get(moment.path)
        if parameter is None or moment.bytes_per_device is None:
            continue
        if not parameter.bytes or parameter.bytes_per_device is None or moment.bytes is None:
            continue
        expected = moment.bytes * parameter.bytes_per_device // parameter.bytes
        if moment.bytes_per_device > expected:
            by_parameter[context.fold_paths[parameter.path]].append(
                (moment.bytes_per_device - expected, moment)
            )
    single, rest = largest(
        (
            (sum(more for more, _ in moments), Fold(path, tuple(array for _, array in moments)))
            for path, moments in by_parameter.items()
        ),
        context.least,
    )
    for saved, moments in single:
        spec, expected_spec = (
            spec_text(array.spec) for array in (moments.first, context.parameters[moments.first.path])
        )
        message = (
            f"Optimizer state of {moments.path} takes {context.amount(moments.bytes_per_device)} per device. "
            f"{moments.first.path} is {spec}, but its parameter is {expected_spec}. With the parameter's "
            f"spec it would take {context.amount(saved)} less."
        )
        yield finding("warning", NOT_FOLLOWING, message, folds=[moments], saved=saved, remedy=_MOMENT_REMEDY)
    if rest:
        saved, folds = sum(number for number, _ in rest), [moments for _, moments in rest]
        message = (
            f"Optimizer state of {len(rest)} smaller parameters is sharded less than the parameters, which "
            f"takes {context.amount(saved)} per device."
        )
        yield finding("warning", NOT_FOLLOWING, message, folds=folds, saved=saved, remedy=_MOMENT_REMEDY)


NO_AXIS_DIVIDES = "no-axis-divides"
_INDIVISIBLE_GROUPS = ("params", "opt_state", "other", "cache")


def indivisible_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per large array, and one for the rest."""
    candidates = []
    for folded in fold(
        array for array in context.of_group(*_INDIVISIBLE_GROUPS) if _is_whole(context, array)
    ):
        parts = largest_split(folded.first.shape or (), context.mesh.size)
        ways = math.prod(parts)
        held = folded.bytes_per_device or 0
        candidates.append((held - held // ways if ways > 1 else held, folded))
    single, rest = largest(candidates, context.least)
    for _, folded in single:
        yield _single_indivisible(context, folded)
    if rest:
        count = sum(folded.count for _, folded in rest)
        whole = context.held_text(array for _, folded in rest for array in folded.arrays)
        message = (
            f"No axis of the mesh divides a dimension of {counted(count, 'smaller array')}: every device "
            f"holds {whole} of them."
        )
        yield finding("note", NO_AXIS_DIVIDES, message, folds=[folded for _, folded in rest])


def _is_whole(context: AuditContext, array: Array) -> bool:
    """Return whether every device holds the array, and no mesh axis larger than 1 divides a dimension."""
    return (
        context.is_replicated(array)
        and array.spec is not None
        and max(array.shape or (0,)) > 1
        and context.finest(array)[1] == ()
    )


def _single_indivisible(context: AuditContext, folded: Fold) -> Finding:
    shape, devices = folded.first.shape or (), context.mesh.size
    parts = largest_split(shape, devices)
    ways = math.prod(parts)
    held = folded.bytes_per_device or 0
    axes = [axis for axis in context.mesh.axes if axis.size > 1]
    named = and_text([f"{axis.name} ({axis.size})" for axis in axes], "or")
    sizes = " × ".join(map(str, shape))
    message = (
        f"{fold_text(folded)} is whole on all {devices} devices, {context.amount(held)} on each: no "
        f"dimension of {sizes} is a multiple of {named}."
    )
    if ways == 1:
        size = min(axis.size for axis in axes)
        remedy = f"Pad a dimension to a multiple of {size}."
        return finding("note", NO_AXIS_DIVIDES, message, folds=[folded], remedy=remedy)
    split = [(number, count) for number, count in enumerate(parts) if count > 1]
    places = and_text([f"{count} parts of dimension {number}" for number, count in split])
    mesh = [count for _, count in split] + ([devices // ways] if ways < devices else [])
    remedy = f"A mesh {' × '.join(map(str, mesh))} divides it into {places}."
    return finding("note", NO_AXIS_DIVIDES, message, folds=[folded], saved=held - held // ways, remedy=remedy)


def largest_split(shape: Sequence[int], devices: int) -> tuple[int, ...]:
    """Return the parts of each dimension in the most even parts that a mesh of this many devices allows."""
    splits = {(1,) * len(shape)}
    for prime in primes_of(devices):
        splits |= {
            (*split[:number], split[number] * prime, *split[number + 1 :])
            for split in splits
            for number, size in enumerate(shape)
            if size and size % (split[number] * prime) == 0
        }
    # On a tie, the fewest dimensions.
    return max(splits, key=lambda split: (math.prod(split), sum(count == 1 for count in split)))


PARAMETER = "replicated-parameter"
MOMENT = "replicated-optimizer-state"
OTHER = "replicated-array"
CODES = (PARAMETER, MOMENT, OTHER)

# Arrays of the train state or of a program whose role is unknown, and caches.
_OTHERS = ("other", "cache")
GROUPS = ("params", "opt_state", *_OTHERS)
_NOUNS = {
    PARAMETER: ("parameter", "parameters"),
    MOMENT: ("array of optimizer state", "arrays of optimizer state"),
    OTHER: ("array", "arrays"),
}


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one finding per large parameter, one for the moments of each, and one per other large array."""
    parameters = fold(a for a in context.of_group("params") if context.is_replicated(a))
    others = fold(a for a in context.of_group(*_OTHERS) if context.is_replicated(a))
    kinds = ((PARAMETER, parameters), (MOMENT, _replicated_moments(context)), (OTHER, others))
    for code, folds in kinds:
        saved = ((sum(map(context.saved, fold.arrays)), fold) for fold in folds)
        single, rest = largest(saved, context.least)
        for bytes_saved, folded in single:
            yield _single(context, code, bytes_saved, folded)
        if rest:
            yield _rest(context, code, rest)


def _replicated_moments(context: AuditContext) -> list[Fold]:
    """Return the replicated moments, one fold per fold of parameters.

    If only the moment is replicated and its parameter is not, `optimizer_state` reports it.
    """
    by_parameter: dict[str, list[Array]] = {}
    without = []
    for moment in filter(context.is_replicated, context.of_group("opt_state")):
        parameter = context.parameters.get(moment.path)
        if parameter is None:
            without.append(moment)
        elif context.is_replicated(parameter):
            by_parameter.setdefault(context.fold_paths[parameter.path], []).append(moment)
    return [*(Fold(path, tuple(moments)) for path, moments in by_parameter.items()), *fold(without)]


def _single(context: AuditContext, code: str, saved: int, folded: Fold) -> Finding:
    axes = context.finest(folded.first)[1]
    parameter = context.parameters.get(folded.first.path)
    size = context.amount(folded.bytes_per_device)
    everywhere = f"replicated on all {context.mesh.size} devices, {size} on each"
    if code in (PARAMETER, OTHER):
        message = f"{fold_text(folded)} is {everywhere}: {_reason(folded.first, context)}."
    elif parameter is None:
        arrays = [other for other in context.snapshot.arrays if other.shape == folded.first.shape]
        same = [other.path for other in fold(arrays) if folded.first not in other.arrays][:2]
        alike = f" It has the shape of {and_text(same)}." if same else ""
        message = f"Optimizer state {fold_text(folded)} is {everywhere}.{alike}"
    else:
        message = (
            f"Optimizer state of {folded.path} ({counted(folded.count, 'array')}) is {everywhere}, as is the "
            f"parameter: {_reason(parameter, context)}."
        )
    message += f" Sharding over {and_text(axes)} saves up to {context.amount(saved)} per device."
    names = [name for name in folded.first.logical_axes or () if name]
    remedy = None
    if axes and names:
        remedy = f"Add a rule for {and_text(names, 'or')} to {' + '.join(axes)}."
    elif context.mapped.isdisjoint(array.path for array in folded.arrays) and (
        spec := _even_spec(folded.first, axes, context)
    ):
        path = folded.path if parameter is None else folded.first.path
        remedy = f"`{spec_text(spec)}` shards {path} evenly."
    return finding("warning", code, message, folds=[folded], saved=saved, remedy=remedy, axes=axes)


def _even_spec(array: Array, axes: tuple[str, ...], context: AuditContext) -> Spec | None:
    """Return a spec that puts each of these axes on a dimension that it divides; None if the spec is unknown.

    An axis goes to the largest dimension with which the rest still fits: small ones are often layers.
    """
    if array.spec is None or array.shape is None or not axes:
        return None

    by_size = sorted(enumerate(array.shape), key=lambda pair: -pair[1])

    def placed(spec: Spec, left: tuple[str, ...]) -> Spec | None:
        if not left:
            return spec
        for number, size in by_size:
            with_axis = (*(spec[number] or ()), left[0])
            if size % context.mesh.ways(with_axis) == 0:
                rest = placed((*spec[:number], with_axis, *spec[number + 1 :]), left[1:])
                if rest is not None:
                    return rest
        return None

    return placed(array.spec, axes)


def _rest(context: AuditContext, code: str, rest: Candidates) -> Finding:
    folds = [fold for _, fold in rest]
    saved = sum(number for number, _ in rest)
    what = _NOUNS[code]
    count = sum(fold.count for fold in folds)
    size = context.held_text(array for fold in folds for array in fold.arrays)
    message = (
        f"{count:,} smaller {what[count != 1]} {'is' if count == 1 else 'are'} replicated on all "
        f"{context.mesh.size} devices, {size} on each. Sharding saves up to {context.amount(saved)} per "
        "device."
    )
    return finding("warning", code, message, folds=folds, saved=saved)


def _reason(array: Array, context: AuditContext) -> str:
    """Return why nothing shards an array, as a clause."""
    rules, names = context.rules, array.logical_axes
    if names is None:
        reason = "its PartitionSpec has no mesh axis larger than 1"
        shape, size = array.shape or (), context.mesh.size
        if shape and all(length % size for length in shape):
            reason += f", and none of its dimensions {' × '.join(map(str, shape))} is a multiple of {size}"
        return reason
    if rules is None:
        return f"its logical axes are {logical_text(names)}, and the rules are unknown"
    if not any(names):
        return "its dimensions have no logical axes"
    try:
        trials = (ledger if context.semantics == "linen" else nnx.ledger)(names, rules)
    except ValueError:
        return "one of its logical axes occurs twice"
    taken = {trial.dimension: trial for trial in trials if trial.taken}
    without = [name for dimension, name in enumerate(names) if name and dimension not in taken]
    reasons = [f"no rule gives {and_text(without, 'or')} a mesh axis"] if without else []
    for trial in taken.values():
        axes, rule = rules[trial.rule][1], rule_words(trial.rule, rules)
        if not axes:
            reasons.append(f"{rule}, replicates it")
        elif set(axes) <= context.trivial:
            reasons.append(f"{rule}, uses only mesh axes of size 1")
    return and_text(reasons) or "the compiler did not follow the rules"
