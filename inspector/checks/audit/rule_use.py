"""Rules that can do nothing: for a name that is not there, to an axis that is not there, or too late."""

from __future__ import annotations

import difflib

from inspector.checks.audit.examined import Examined, finding, names_text
from inspector.core.rules import Rule
from inspector.core.snapshot import Finding
from inspector.layout.reasons import rule_words
from inspector.models.catalogue import CATALOGUE

WHAT = "rules that are never used, and rules to mesh axes that are not there"

ABSENT_AXIS = "rule-names-absent-axis"
NEVER_USED = "rule-never-used"


def findings(examined: Examined) -> list[Finding]:
    """One for each rule to an absent mesh axis, one for each that no array can ever take."""
    rules = examined.rules or ()
    return [*_absent(examined, rules), *_never_used(examined, rules)]


def _absent(examined: Examined, rules: tuple[Rule, ...]) -> list[Finding]:
    axes = examined.mesh.axis_names
    found = []
    for number, (_, named) in enumerate(rules):
        absent = [axis for axis in named if axis not in axes]
        if absent:
            near = difflib.get_close_matches(absent[0], axes, n=1)
            found.append(
                finding(
                    "error",
                    ABSENT_AXIS,
                    f"{_capital(rule_words(number, rules))}, names {names_text(absent)}, which the mesh "
                    f"lacks: it has {names_text(axes)}. Flax does not check, and JAX refuses the array.",
                    remedy=f"Write {near[0]}, or remove the rule." if near else "Remove the rule.",
                    rule=number,
                    rule_text=_text(rules[number]),
                )
            )
    return found


def _never_used(examined: Examined, rules: tuple[Rule, ...]) -> list[Finding]:
    known = _logical_axes(examined)
    found = []
    for number, (name, _) in enumerate(rules):
        before = shadowing(rules, number) if examined.semantics == "linen" else None
        after = replaced_by(rules, number) if examined.semantics == "nnx" else None
        if after is not None:
            message = (
                f"{_capital(rule_words(number, rules))}, is never used: nnx takes the last rule for a name, "
                f"{rule_words(after, rules)}."
            )
            remedy = "Remove it."
        elif before is not None:
            message = (
                f"{_capital(rule_words(number, rules))}, is never used: {rule_words(before, rules)}, stands "
                "before it and is taken whenever this one could be."
            )
            remedy = "Remove it, or move it before the other."
        elif known is not None and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            message = (
                f"{_capital(rule_words(number, rules))}, is never used: the model has no logical axis {name}"
                + (f"; {near[0]} is the nearest that it has." if near else ".")
            )
            remedy = f"Write {near[0]}, or remove the rule." if near else "Remove the rule."
        else:
            continue
        text = _text(rules[number])
        found.append(
            finding("warning", NEVER_USED, message, remedy=remedy, rule=number, rule_text=text)
        )
    return found


def shadowing(rules: tuple[Rule, ...], number: int) -> int | None:
    """An earlier rule of the same name that is free whenever this one is; None if there is none.

    Linen takes a rule if all of its mesh axes are free. So a rule after one whose axes are among its own
    can never be taken; least of all after a rule to none.
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


def replaced_by(rules: tuple[Rule, ...], number: int) -> int | None:
    """The last rule of the same name after this one, which nnx takes in its place; None if there is none."""
    later = [at for at in range(number + 1, len(rules)) if rules[at][0] == rules[number][0]]
    return later[-1] if later else None


def _logical_axes(examined: Examined) -> set[str] | None:
    """Every logical axis of the model, None where they are not all known: a plan has no activations."""
    model = (examined.found.layout or {}).get("model")
    entry = CATALOGUE.get(model) if isinstance(model, str) else None
    # What names a person's own model gives its activations, nobody has told.
    return None if entry is None or entry.own else set(entry.logical_axes)


def _text(rule: Rule) -> str:
    return f"{rule[0]} → {' + '.join(rule[1]) or 'none'}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
