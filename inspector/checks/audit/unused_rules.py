"""Rules without an effect: unknown logical axes, unknown mesh axes, or hidden by another rule."""

from __future__ import annotations

import difflib

from inspector.checks.audit.context import AuditContext, finding, names_text
from inspector.core.rules import Rule
from inspector.core.rules.sentences import rule_text, rule_words
from inspector.core.snapshot import Finding
from inspector.models.catalogue import CATALOGUE

ABSENT_AXIS = "rule-names-absent-axis"
NEVER_USED = "rule-never-used"
CODES = (ABSENT_AXIS, NEVER_USED)


def findings(context: AuditContext) -> list[Finding]:
    """Return one finding per rule with an unknown mesh axis, and one per rule that no array can use."""
    rules = context.rules or ()
    axes, names = context.mesh.axis_names, _logical_axes(context)
    found = []
    for number, (name, used) in enumerate(rules):
        rule = f"Rule {rule_words(number, rules).removeprefix('rule ')},"
        facts = {"rule": number, "rule_text": rule_text(rules[number])}
        absent = [axis for axis in used if axis not in axes]
        if absent:
            message = (
                f"{rule} uses {names_text(absent)}, but the mesh axes are {names_text(axes)}. Flax does "
                "not check this, and JAX rejects the array."
            )
            remedy = _nearest(absent[0], axes)
            found.append(finding("error", ABSENT_AXIS, message, remedy=remedy, **facts))
        hidden_by = _hidden_by(rules, number, context)
        if hidden_by is not None:
            why = "nnx uses the last rule of a name" if hidden_by > number else "it comes first"
            message = f"{rule} is never used: {rule_words(hidden_by, rules)}, wins, as {why}."
            remedy = "Remove it."
        elif names is not None and name not in names:
            message = f"{rule} is never used: the model has no logical axis {name}."
            remedy = _nearest(name, names)
        else:
            continue
        found.append(finding("warning", NEVER_USED, message, remedy=remedy, **facts))
    return sorted(found, key=lambda one: one.code != ABSENT_AXIS)


def shadowing(rules: tuple[Rule, ...], number: int) -> int | None:
    """Return an earlier rule of the same name that Linen takes whenever it could take this one.

    Linen takes a rule if all of its mesh axes are free, so a subset of the axes is enough.
    """
    name, axes = rules[number]
    return next(
        (
            before
            for before, (other, earlier) in enumerate(rules[:number])
            if other == name and set(earlier) <= set(axes)
        ),
        None,
    )


def _hidden_by(rules: tuple[Rule, ...], number: int, context: AuditContext) -> int | None:
    if context.semantics == "linen":
        return shadowing(rules, number)
    later = [at for at in range(number + 1, len(rules)) if rules[at][0] == rules[number][0]]
    return later[-1] if later else None


def _nearest(name: str, known) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Change it to {near[0]}, or remove the rule." if near else "Remove the rule."


def _logical_axes(context: AuditContext) -> set[str] | None:
    """Return the model's logical axes, or None if its activations may have unknown ones."""
    model = (context.snapshot.layout or {}).get("model")
    entry = CATALOGUE.get(model) if isinstance(model, str) else None
    return None if entry is None or entry.own else set(entry.logical_axes)
