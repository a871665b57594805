"""Optimizer state that takes more of a device than its parameters explain."""

from collections import defaultdict
from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding, fold_text, largest
from inspector.core.folding import Fold
from inspector.core.sharding_text import spec_text
from inspector.core.snapshot import Array, Finding

NOT_FOLLOWING = "optimizer-not-following"
UNEXPLAINED = "state-larger-than-parameters"
_FLOATS = ("float", "bfloat", "complex")  # beginnings of the types that an optimizer computes with
_REMEDY = (
    "Give the optimizer state the shardings of its parameters, for example as out_shardings of the jitted "
    "init."
)


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield moments that are sharded less than their parameter, and large state without a parameter."""
    yield from _not_following(context)
    yield from _unexplained(context)


def _not_following(context: AuditContext) -> Iterator[Finding]:
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
    for saved, fold in single:
        spec, expected_spec = (
            spec_text(array.spec) for array in (fold.first, context.parameters[fold.first.path])
        )
        message = (
            f"Optimizer state of {fold.path} takes {context.amount(fold.bytes_per_device)} per device. "
            f"{fold.first.path} is {spec}, but its parameter is {expected_spec}. With the parameter's spec "
            f"it would take {context.amount(saved)} less."
        )
        yield finding("warning", NOT_FOLLOWING, message, folds=[fold], saved=saved, remedy=_REMEDY)
    if rest:
        saved, folds = sum(number for number, _ in rest), [fold for _, fold in rest]
        message = (
            f"Optimizer state of {len(rest)} smaller parameters is sharded less than the parameters, which "
            f"takes {context.amount(saved)} per device."
        )
        yield finding("warning", NOT_FOLLOWING, message, folds=folds, saved=saved, remedy=_REMEDY)


def _unexplained(context: AuditContext) -> Iterator[Finding]:
    parameters = sum(array.bytes_per_device or 0 for array in context.of_group("params"))
    if not parameters or not context.trains:
        return
    candidates = []
    shapes = {array.shape for array in context.of_group("params")}
    for fold in context.folds("opt_state", "other"):
        # Tokens, masks and counters are not optimizer state, and neither is an array on one device.
        numbers = [
            array
            for array in fold.arrays
            if array.spec is not None and (array.dtype or "float").startswith(_FLOATS)
        ]
        alone = tuple(array for array in numbers if array.shape not in shapes)
        # Replicated arrays have a separate finding.
        if alone and not context.is_replicated(alone[0]):
            own = Fold(fold.path, alone)
            candidates.append((own.bytes_per_device or 0, own))
    single, _ = largest(candidates, max(context.least, parameters + 1))
    for size, fold in single:
        message = (
            f"{fold_text(fold)} takes {context.amount(size)} per device, more than all parameters "
            f"({context.amount(parameters)}), and matches the shape of none."
        )
        yield finding("note", UNEXPLAINED, message, folds=[fold])
