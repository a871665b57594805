"""Why each dimension of an array is split, or is not, in sentences.

The reasons are those of `rules.ledger`, of names that a model writes at its parameters, and of the mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.rules import Rule, Trial, ledger
from inspector.snapshot import Array, Mesh


@dataclass(frozen=True)
class Reason:
    """One dimension: its name if it has one, the mesh axes that split it, and why, a sentence each."""

    dimension: int
    logical_axis: str | None
    axes: tuple[str, ...]
    sentences: tuple[str, ...]


def reasons(array: Array, mesh: Mesh, rules: Sequence[Rule] | None) -> tuple[Reason, ...] | None:
    """The reason for each dimension; None where nothing is known of how the array came to be split.

    `rules` is None for a model that names mesh axes itself.
    """
    if array.spec is None:
        return None
    if array.group in ("activation", "gradient") and array.logical_axes is None:
        return tuple(
            Reason(dimension, None, axes or (), ("The compiler chose it; nothing was asked for.",))
            for dimension, axes in enumerate(array.spec)
        )
    trials = ledger(array.logical_axes, rules) if array.logical_axes and rules is not None else ()
    found = []
    for dimension, axes in enumerate(array.spec):
        name = array.logical_axes[dimension] if array.logical_axes else None
        if array.logical_axes is None:
            sentences = [_unruled(array, axes, rules)]
        elif name is None:
            sentences = ["It has no logical axis, and unspecified means unsharded."]
        elif rules is None:
            sentences = ["The rules are not known."]
        else:
            mine = [trial for trial in trials if trial.dimension == dimension]
            sentences = [_sentence(trial, array, rules) for trial in mine]
            sentences = sentences or [f"No rule names {name}, and unspecified means unsharded."]
        sentences += _of_the_mesh(array, dimension, axes or (), mesh)
        found.append(Reason(dimension, name, axes or (), tuple(sentences)))
    return tuple(found)


def rule_words(number: int, rules: Sequence[Rule]) -> str:
    """A rule with its number as people count, `rule 2, hidden → model`."""
    name, axes = rules[number]
    return f"rule {number + 1}, {name} → {' + '.join(axes) or 'none'}"


def _unruled(array: Array, axes: tuple[str, ...] | None, rules: Sequence[Rule] | None) -> str:
    if rules is None and (axes or array.box is not None):
        return "The model names the mesh axes of this array itself."
    return "Nothing names its dimensions, and unspecified means unsharded."


def _sentence(trial: Trial, array: Array, rules: Sequence[Rule]) -> str:
    rule = rule_words(trial.rule, rules)
    if trial.taken:
        return f"Taken: {rule}." if rules[trial.rule][1] else f"Taken: {rule}, which leaves it whole."
    if trial.settled_by is not None:
        return f"Passed over: {rule}; {rule_words(trial.settled_by, rules)}, had settled it."
    other = array.logical_axes[trial.busy_dimension] or f"dimension {trial.busy_dimension}"
    return (
        f"Passed over: {rule}; mesh axis {trial.busy_axis} is taken by {other} "
        f"(dimension {trial.busy_dimension}) through {rule_words(trial.busy_rule, rules)}."
    )


def _of_the_mesh(array: Array, dimension: int, axes: tuple[str, ...], mesh: Mesh) -> list[str]:
    said = [
        f"Mesh axis {axis.name} has size 1 and splits nothing."
        for axis in mesh.axes
        if axis.name in axes and axis.size == 1
    ]
    ways, size = mesh.ways(axes), array.shape[dimension]
    if size % ways:
        said.append(f"{ways} ways do not divide its {size} rows, which JAX refuses.")
    return said
