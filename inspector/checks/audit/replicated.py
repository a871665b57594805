"""Parameters, and apart from them moments of the optimizer, that every device holds whole, and why."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.checks.audit.examined import (
    Examined,
    finding,
    names_text,
    subject,
    worth_telling,
)
from inspector.core.folding import Fold, fold
from inspector.core.formatting import counted
from inspector.core.rules import ledger, nnx
from inspector.core.snapshot import Array, Finding
from inspector.layout.reasons import rule_words

WHAT = "parameters and optimizer state that every device holds whole"

PARAMETER = "replicated-parameter"
MOMENT = "replicated-optimizer-state"


def findings(examined: Examined) -> list[Finding]:
    """A finding for each large parameter, and one for the moments of each."""
    return [*_of(examined, "params"), *_of(examined, "opt_state")]


def why_whole(array: Array, examined: Examined) -> str:
    """Why nothing splits an array, as the end of a sentence."""
    rules, names = examined.rules, array.logical_axes
    if names is None:
        return "its PartitionSpec names no mesh axis that is larger than 1"
    if rules is None:
        return f"its logical axes are {_axes_text(names)}, and the rules are not known"
    if not any(names):
        return "the model gives none of its dimensions a name"
    try:
        tried = (ledger if examined.semantics == "linen" else nnx.ledger)(names, rules)
        trials = {trial.dimension: trial for trial in tried if trial.taken}
    except ValueError:
        return "a logical axis occurs twice in it"
    unruled = [name for dimension, name in enumerate(names) if name and dimension not in trials]
    said = [f"no rule gives {names_text(unruled, 'or')} a mesh axis"] if unruled else []
    for trial in trials.values():
        axes = rules[trial.rule][1]
        if not axes:
            said.append(f"{rule_words(trial.rule, rules)}, leaves it whole")
        elif set(axes) <= examined.trivial:
            said.append(
                f"{rule_words(trial.rule, rules)}, names only mesh axes of size 1, which split nothing"
            )
    return names_text(said) or "the compiler chose otherwise than the rules say"


def _of(examined: Examined, group: str) -> list[Finding]:
    whole = [array for array in examined.of_group(group) if examined.is_whole(array)]
    if group == "opt_state":
        # What is whole although its parameter is split is told by `optimizer`.
        whole = [array for array in whole if _follows(array, examined)]
    clusters = _clusters(whole, examined) if group == "opt_state" else fold(whole)
    candidates = [
        (sum(examined.saved(array) for array in cluster.arrays), cluster) for cluster in clusters
    ]
    alone, rest = worth_telling(candidates, examined.least)
    found = [_alone(examined, group, saved, cluster) for saved, cluster in alone]
    if rest:
        found.append(_together(examined, group, rest))
    return found


def _follows(moment: Array, examined: Examined) -> bool:
    parameter = examined.parameters.get(moment.path)
    return parameter is None or examined.is_whole(parameter)


def _clusters(moments: Sequence[Array], examined: Examined) -> list[Fold]:
    """The moments of one parameter, or of one fold of parameters, together."""
    by_parameter: dict[str, list[Array]] = {}
    owner = {array.path: one.path for one in examined.folds("params") for array in one.arrays}
    alone = []
    for moment in moments:
        parameter = examined.parameters.get(moment.path)
        if parameter is None:
            alone.append(moment)
        else:
            by_parameter.setdefault(owner[parameter.path], []).append(moment)
    return [*(Fold(path, tuple(held)) for path, held in by_parameter.items()), *fold(alone)]


def _alone(examined: Examined, group: str, saved: int, cluster: Fold) -> Finding:
    first, devices = cluster.first, examined.mesh.size
    held = examined.amount(cluster.bytes_per_device)
    axes = examined.finest(first)[1]
    fix = (
        f"Splitting {'it' if cluster.count == 1 else 'each'} over {names_text(axes)} would save "
        f"up to {examined.amount(saved)} a device."
    )
    parameter = examined.parameters.get(first.path)
    if group == "params":
        message = (
            f"{subject(cluster)} is whole on each of the {devices} devices, {held} on every one: "
            f"{why_whole(first, examined)}. {fix}"
        )
        code, words = PARAMETER, _remedy_words(first, axes)
    elif parameter is not None:
        message = (
            f"The optimizer keeps {counted(cluster.count, 'array')} of the size of {cluster.path}, {held} "
            f"in all, whole on each of the {devices} devices, because they follow that parameter: "
            f"{why_whole(parameter, examined)}. {fix}"
        )
        code, words = MOMENT, _remedy_words(first, axes)
    else:
        message = (
            f"{subject(cluster)} of the optimizer is whole on each of the {devices} devices, {held}; it has "
            f"the shape of no parameter whose sharding it could follow. {fix}"
        )
        code, words = MOMENT, _remedy_words(first, axes)
    shown = Fold(cluster.path, cluster.arrays)
    return finding(
        "warning", code, message, folds=[shown], saved=saved, remedy=words, axes=list(axes)
    )


def _together(examined: Examined, group: str, rest: Sequence[tuple[int, Fold]]) -> Finding:
    folds = [one for _, one in rest]
    saved = sum(number for number, _ in rest)
    noun = "smaller parameter" if group == "params" else "smaller array of optimizer state"
    plural = "smaller parameters" if group == "params" else "smaller arrays of optimizer state"
    count = sum(one.count for one in folds)
    held = sum(one.bytes_per_device or 0 for one in folds)
    return finding(
        "warning",
        PARAMETER if group == "params" else MOMENT,
        f"{counted(count, noun, plural)} {'is' if count == 1 else 'are'} whole on each of the "
        f"{examined.mesh.size} devices, {examined.amount(held)} together. Splitting them would save up to "
        f"{examined.amount(saved)} a device.",
        folds=folds,
        saved=saved,
    )


def _remedy_words(array: Array, axes: Sequence[str]) -> str | None:
    if not axes or array.logical_axes is None or not any(array.logical_axes):
        return None
    names = names_text([name for name in array.logical_axes if name], "or")
    return f"Give {names} a rule to {' + '.join(axes)}."


def _axes_text(names: Sequence[str | None]) -> str:
    return f"({', '.join(name or '–' for name in names)})"
