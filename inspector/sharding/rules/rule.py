"""A rule, its outcome for one dimension of an array, and both in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.records.snapshot import Mesh

# (logical axis, mesh axes): several mesh axes split one dimension together; none leaves it whole.
Rule = tuple[str, tuple[str, ...]]

# Linen applies the first rule whose mesh axes are free; nnx the last rule for a name, or else the name.
RulesSemantics = Literal["linen", "nnx"]


@dataclass(frozen=True)
class Trial:
    """The outcome of one rule for one dimension of an array. `rule` and `dimension` count from 0.

    A rule is passed over for one of two reasons. Another rule, `settled_by`, decides the dimension: an
    earlier one in Linen, a later one in nnx. Or the mesh axis `busy_axis` already shards `busy_dimension`
    by the rule `busy_rule`.
    """

    rule: int
    dimension: int
    taken: bool
    settled_by: int | None = None
    busy_axis: str | None = None
    busy_dimension: int | None = None
    busy_rule: int | None = None


def rule_words(number: int, rules: Sequence[Rule]) -> str:
    """Return a rule with its number, counted from 1: `rule 2, hidden → model`."""
    return f"rule {number + 1}, {rule_text(rules[number])}"


def rule_text(rule: Rule) -> str:
    """Return a rule as text: `embed → fsdp + tensor`, `embed → none`."""
    name, axes = rule
    return f"{name} → {' + '.join(axes) or 'none'}"


def outcome(trial: Trial, logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> str:
    """Return whether a rule applied, and why: `Taken: rule 2, hidden → model.`"""
    rule = rule_words(trial.rule, rules)
    if trial.taken:
        return f"Taken: {rule}." if rules[trial.rule][1] else f"Taken: {rule}, which leaves it whole."
    return f"Passed over: {rule}; {_hindrance(trial, logical_axes, rules)}."


def outcome_alone(trial: Trial, logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> str:
    """Return the outcome without the rule: `taken`, `passed over: rule 1, … had settled it`."""
    if not trial.taken:
        return f"passed over: {_hindrance(trial, logical_axes, rules)}"
    return "taken" if rules[trial.rule][1] else "taken: explicitly none, so it stays whole"


def of_the_mesh(axes: Sequence[str], size: int | None, mesh: Mesh) -> list[str]:
    """Return the problems of a dimension of `size` (None if unknown) that is sharded over `axes`."""
    sizes = {axis.name: axis.size for axis in mesh.axes}
    said = [f"The mesh has no axis {axis}." for axis in axes if axis not in sizes]
    said += [f"Mesh axis {axis} has size 1 and splits nothing." for axis in axes if sizes.get(axis) == 1]
    ways = mesh.ways(tuple(axis for axis in axes if axis in sizes))
    if size is not None and size % ways:
        said.append(f"Its size {size} is not divisible by {ways}, which JAX refuses.")
    return said


def _hindrance(trial: Trial, logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> str:
    if trial.settled_by is not None:
        settling = rule_words(trial.settled_by, rules)
        if trial.settled_by > trial.rule:
            return f"{settling}, comes later and replaces it"
        return f"{settling}, had settled it"
    assert trial.busy_dimension is not None and trial.busy_rule is not None
    other = logical_axes[trial.busy_dimension] or f"dimension {trial.busy_dimension}"
    return (
        f"mesh axis {trial.busy_axis} is taken by {other} "
        f"(dimension {trial.busy_dimension}) through {rule_words(trial.busy_rule, rules)}"
    )
