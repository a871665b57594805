"""Optimizer state that takes more of a device than its parameters explain."""

from collections import defaultdict
from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding, largest
from inspector.core.folding import Fold
from inspector.core.sharding_text import spec_text
from inspector.core.snapshot import Array, Finding

NOT_FOLLOWING = "optimizer-not-following"
_REMEDY = (
    "Give the optimizer state the shardings of its parameters, for example as out_shardings of the jitted "
    "init."
)


def findings(context: AuditContext) -> Iterator[Finding]:
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
