"""Rules without an effect, and rules that Flax Linen and Flax nnx read differently."""

import difflib
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from inspector.checks.audit.context import AuditContext, Facts, finding
from inspector.core.folding import fold
from inspector.core.formatting import and_text, counted
from inspector.core.rules import Rule
from inspector.core.rules.disagreement import EXPLANATIONS, Cause, disagreements
from inspector.core.rules.rule import rule_text, rule_words
from inspector.core.snapshot import Array, Finding
from inspector.layout import left_out_rules
from inspector.model.built_in.catalogue import CATALOGUE

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
        facts: Facts = {"rule": number, "rule_text": rule_text(rule)}
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
