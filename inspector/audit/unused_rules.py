"""Rules without an effect or with less than they say, and rules that Linen and nnx read differently."""

import difflib
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from inspector.audit.context import AuditContext, FindingFields, finding, fold_text
from inspector.layout import left_out_rules
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.records.snapshot import Array, Finding
from inspector.sharding.folding import fold
from inspector.sharding.rules import Rule, Trial, ledger
from inspector.sharding.rules.nnx import EXPLANATIONS, Cause, disagreements
from inspector.sharding.rules.rule import rule_text, rule_words
from inspector.text.formatting import and_text, counted

# Two logical axes mapped to one mesh axis: the second is silently replicated.
#
# This is the most common costly mistake with logical axes. An array can use a mesh axis once. The first rule
# takes it, and Flax Linen skips the other without a warning.


DROPPED_AXIS = "dropped-logical-axis"


def dropped_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one finding per skipped rule and mesh axis, over all parameters.

    Activations are left out, because their batch dimension is expected to take the mesh axis first.
    """
    rules = context.rules
    if rules is None or context.semantics != "linen":
        return  # nnx uses the mesh axis twice, which JAX rejects
    by_rule: dict[tuple[int, str | None], list[tuple[Array, Trial]]] = defaultdict(list)
    for array in context.of_group("params"):
        for trial in _skipped(array, rules, context.trivial):
            by_rule[trial.rule, trial.busy_axis].append((array, trial))
    for dropped in by_rule.values():
        if (fault := _dropped(context, rules, dropped)) is not None:
            yield fault


def _skipped(array: Array, rules: tuple[Rule, ...], trivial: frozenset[str]) -> list[Trial]:
    """Return, for each unsharded dimension, the first rule that was skipped for a busy mesh axis."""
    try:
        trials = ledger(array.logical_axes or (), rules)
    except ValueError:
        return []
    taken = {trial.dimension for trial in trials if trial.taken}
    first: dict[int, Trial] = {}
    for trial in trials:
        if trial.busy_axis is None or trial.dimension in taken:
            continue
        # A rule to mesh axes of size 1 would not have sharded anything.
        if not set(rules[trial.rule][1]) <= trivial:
            first.setdefault(trial.dimension, trial)
    return list(first.values())


def _dropped(
    context: AuditContext, rules: tuple[Rule, ...], dropped: list[tuple[Array, Trial]]
) -> Finding | None:
    """Return the finding about parameters whose dimension a rule would shard if its mesh axis were free."""
    dropped = sorted(dropped, key=lambda pair: -(pair[0].bytes_per_device or 0))
    arrays = [array for array, _ in dropped]
    paths = {array.path for array in arrays}
    moments = [
        moment
        for moment in context.of_group("opt_state")
        if moment.path in context.parameters and context.parameters[moment.path].path in paths
    ]
    if sum(array.bytes_per_device or 0 for array in (*arrays, *moments)) < context.least:
        return None
    saved = sum(context.saved(array) for array in (*arrays, *moments))
    folds = fold(arrays)
    first, trial = dropped[0]
    name = (first.logical_axes or ())[trial.dimension] or ""
    where = fold_text(folds[0])
    if len(folds) > 1:
        where += f" and {counted(len(arrays) - folds[0].count, 'more array')}"
    winners = sorted({trial.busy_rule for _, trial in dropped if trial.busy_rule is not None})
    names = list(dict.fromkeys([*(rules[number][0] for number in winners), name]))
    comes = rule_words(winners[0], rules) + ", comes"
    if len(winners) > 1:
        comes = f"rules {and_text([str(number + 1) for number in winners])} come"
    free = [more for fold in folds if (more := context.finest(fold.first)[1])]
    axes = list(dict.fromkeys(axis for split in free for axis in split))
    end = "No other mesh axis is free that divides it."
    if axes:
        some = "" if len(free) == len(folds) else " in some of them"
        end = (
            f"Mesh axis {and_text(axes, 'or')} is free{some}: sharding over it saves "
            f"{context.amount(saved)} of parameters and optimizer state per device."
        )
    return finding(
        "warning" if saved >= context.least else "note",
        DROPPED_AXIS,
        f"Logical axes {and_text(names)} are mapped to mesh axis {trial.busy_axis}, but an array can use "
        f"it only once. In {where}, {comes} first. Flax skips {rule_words(trial.rule, rules)}, so {name} "
        f"(dimension {trial.dimension}, size {(first.shape or ())[trial.dimension]}) is not sharded. {end}",
        folds=folds,
        saved=saved if axes else None,
        remedy=f"Map {name} to {and_text(axes, 'or')}." if axes else None,
        axes=tuple(axes),
        rule=trial.rule,
        logical_axis=name,
    )


ABSENT_AXIS = "rule-names-absent-axis"
LEFT_OUT = "rule-left-out"
NEVER_USED = "rule-never-used"
DISAGREE = "linen-and-nnx-disagree"

_MOST_NAMES = 4  # in a message


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one finding per rule with an unknown mesh axis, and then one per rule that no array can use."""
    rules = context.rules or ()
    axes, names = context.mesh.axis_names, _logical_axes(context)
    entries = [
        (number, f"Rule {rule_words(number, rules).removeprefix('rule ')},", rule)
        for number, rule in enumerate(rules)
    ]
    for number, words, rule in entries:
        absent = [axis for axis in rule[1] if axis not in axes]
        if absent:
            message = (
                f"{words} uses {and_text(absent)}, but the mesh axes are {and_text(axes)}. Flax does not "
                "check this, and JAX rejects the array."
            )
            remedy = _nearest(absent[0], axes)
            text = rule_text(rule)
            yield finding("error", ABSENT_AXIS, message, remedy=remedy, rule=number, rule_text=text)
    for number, words, rule in entries:
        facts: FindingFields = {"rule": number, "rule_text": rule_text(rule)}
        hidden_by = _hidden_by(rules, number, context)
        if hidden_by is not None:
            wins = "nnx uses the last rule of a name" if hidden_by > number else "it comes first"
            why = f"{rule_words(hidden_by, rules)}, wins, as {wins}"
            remedy = "Remove it."
        elif names is not None and rule[0] not in names:
            why, remedy = f"the model has no logical axis {rule[0]}", _nearest(rule[0], names)
            facts["unknown_name"] = rule[0]
        else:
            continue
        message = f"{words} is never used: {why}."
        yield finding("warning", NEVER_USED, message, remedy=remedy, **facts)


def left_out_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield one warning for the rules of a user's model that the mesh has no axes for."""
    model = (context.snapshot.layout or {}).get("model")
    entry = CATALOGUE.get(model) if isinstance(model, str) else None
    if entry is None or context.rules is None:
        return
    axes = context.mesh.axis_names
    left = left_out_rules(entry, context.rules, axes)
    if left:
        yield finding(
            "warning",
            LEFT_OUT,
            left_out_text(left, axes),
            remedy="Give the mesh these axes, or write rules for the mesh.",
            rules=tuple(map(rule_text, left)),
        )


def left_out_text(left: Sequence[Rule], axes: Sequence[str]) -> str:
    """Return which rules of a model are left out, and which mesh axes are missing, in a sentence."""
    absent = dict.fromkeys(axis for _, together in left for axis in together if axis not in axes)
    listed = ", ".join(rule_text(rule) for rule in left[:_MOST_NAMES])
    more = f" and {len(left) - _MOST_NAMES} more" if len(left) > _MOST_NAMES else ""
    return (
        f"{counted(len(left), 'rule')} of the model {'is' if len(left) == 1 else 'are'} left out, because "
        f"the mesh has {and_text(axes)} but not {and_text([*absent], 'or')}: {listed}{more}."
    )


def shadowing(rules: tuple[Rule, ...], number: int) -> int | None:
    """Return an earlier rule of the same name that Linen takes whenever it could take this one.

    Linen takes a rule if all of its mesh axes are free, so a subset of the axes is enough.
    """
    name, axes = rules[number]
    for before, (other, earlier) in enumerate(rules[:number]):
        if other == name and set(earlier) <= set(axes):
            return before
    return None


def _hidden_by(rules: tuple[Rule, ...], number: int, context: AuditContext) -> int | None:
    if context.semantics == "linen":
        return shadowing(rules, number)
    later = [at for at in range(number + 1, len(rules)) if rules[at][0] == rules[number][0]]
    return later[-1] if later else None


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"Change it to {near[0]}, or remove the rule." if near else "Remove the rule."


def _logical_axes(context: AuditContext) -> set[str] | None:
    """Return the model's logical axes, or None if its activations may have unknown ones."""
    model = (context.snapshot.layout or {}).get("model")
    entry = CATALOGUE.get(model) if isinstance(model, str) else None
    return None if entry is None or entry.own else set(entry.logical_axes)


def differing_findings(context: AuditContext) -> list[Finding]:
    """Return one note per cause, over all arrays that it affects."""
    rules = context.rules
    if rules is None:
        return []
    differing = functools.cache(lambda names: disagreements(names, rules))
    names: dict[Cause, dict[str, None]] = defaultdict(dict)
    arrays: dict[Cause, dict[str, Array]] = defaultdict(dict)
    for array in context.snapshot.arrays:
        for place in differing(array.logical_axes) if array.logical_axes is not None else ():
            names[place.cause][place.logical_axis] = None
            arrays[place.cause][array.path] = array
    other = "nnx" if context.semantics == "linen" else "Linen"
    notes = []
    for cause, affected in arrays.items():
        first, more = list(names[cause])[:_MOST_NAMES], len(names[cause]) - _MOST_NAMES
        listed = f"{', '.join(first)} and {more} more" if more > 0 else and_text(first)
        message = (
            f"Flax {other} would shard {counted(len(affected), 'array')} differently by these rules: "
            f"{EXPLANATIONS[cause]}. Logical axes: {listed}."
        )
        notes.append(finding("note", DISAGREE, message, folds=fold(affected.values()), cause=cause))
    return notes
