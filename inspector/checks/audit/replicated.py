"""Parameters and optimizer state that every device holds whole, and why."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.checks.audit.context import (
    AuditContext,
    Candidates,
    finding,
    fold_text,
    largest,
    names_text,
)
from inspector.core.folding import Fold, fold
from inspector.core.formatting import counted, logical_text
from inspector.core.rules import ledger, nnx
from inspector.core.rules.sentences import rule_words
from inspector.core.snapshot import Array, Finding

PARAMETER = "replicated-parameter"
MOMENT = "replicated-optimizer-state"
CODES = (PARAMETER, MOMENT)


def findings(context: AuditContext) -> list[Finding]:
    """Return one finding per large parameter, and one for the moments of each."""
    parameters = fold(a for a in context.of_group("params") if context.is_replicated(a))
    return [
        *_of(context, PARAMETER, parameters),
        *_of(context, MOMENT, _replicated_moments(context)),
    ]


def _of(context: AuditContext, code: str, folds: Sequence[Fold]) -> list[Finding]:
    saved = ((sum(context.saved(array) for array in one.arrays), one) for one in folds)
    single, rest = largest(saved, context.least)
    found = [_single(context, code, bytes_saved, one) for bytes_saved, one in single]
    return found + ([_rest(context, code, rest)] if rest else [])


def _replicated_moments(context: AuditContext) -> list[Fold]:
    """Return the replicated moments, one fold per fold of parameters.

    If only the moment is replicated and its parameter is not, `optimizer_state` reports it.
    """
    by_parameter: dict[str, list[Array]] = {}
    paths = {array.path: one.path for one in context.folds("params") for array in one.arrays}
    without = []
    for moment in context.of_group("opt_state"):
        if not context.is_replicated(moment):
            continue
        parameter = context.parameters.get(moment.path)
        if parameter is None:
            without.append(moment)
        elif context.is_replicated(parameter):
            by_parameter.setdefault(paths[parameter.path], []).append(moment)
    return [*(Fold(path, tuple(held)) for path, held in by_parameter.items()), *fold(without)]


def _single(context: AuditContext, code: str, saved: int, one: Fold) -> Finding:
    axes = context.finest(one.first)[1]
    parameter = context.parameters.get(one.first.path)
    held = context.amount(one.bytes_per_device)
    everywhere = f"replicated on all {context.mesh.size} devices, {held} on each"
    if code == PARAMETER:
        message = f"{fold_text(one)} is {everywhere}: {_reason(one.first, context)}."
    elif parameter is not None:
        arrays = counted(one.count, "array")
        message = (
            f"Optimizer state of {one.path} ({arrays}) is {everywhere}, as is the parameter: "
            f"{_reason(parameter, context)}."
        )
    else:
        message = (
            f"Optimizer state {fold_text(one)} is {everywhere}. It has the shape of no parameter."
        )
    message += f" Sharding over {names_text(axes)} saves up to {context.amount(saved)} per device."
    names = [name for name in one.first.logical_axes or () if name]
    remedy = (
        f"Add a rule for {names_text(names, 'or')} to {' + '.join(axes)}."
        if axes and names
        else None
    )
    return finding(
        "warning", code, message, folds=[one], saved=saved, remedy=remedy, axes=list(axes)
    )


def _rest(context: AuditContext, code: str, rest: Candidates) -> Finding:
    folds = [one for _, one in rest]
    saved = sum(number for number, _ in rest)
    noun = "smaller parameter" if code == PARAMETER else "smaller array of optimizer state"
    plural = "smaller parameters" if code == PARAMETER else "smaller arrays of optimizer state"
    count = sum(one.count for one in folds)
    held = context.amount(sum(one.bytes_per_device or 0 for one in folds))
    message = (
        f"{counted(count, noun, plural)} {'is' if count == 1 else 'are'} replicated on all "
        f"{context.mesh.size} devices, {held} on each. Sharding saves up to {context.amount(saved)} per "
        "device."
    )
    return finding("warning", code, message, folds=folds, saved=saved)


def _reason(array: Array, context: AuditContext) -> str:
    """Return why nothing shards an array, as a clause."""
    rules, names = context.rules, array.logical_axes
    if names is None:
        return "its PartitionSpec has no mesh axis larger than 1"
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
    reasons = [f"no rule gives {names_text(without, 'or')} a mesh axis"] if without else []
    for trial in taken.values():
        axes, rule = rules[trial.rule][1], rule_words(trial.rule, rules)
        if not axes:
            reasons.append(f"{rule}, replicates it")
        elif set(axes) <= context.trivial:
            reasons.append(f"{rule}, uses only mesh axes of size 1")
    return names_text(reasons) or "the compiler did not follow the rules"
