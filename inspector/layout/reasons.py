"""Why each dimension of an array is split, or is not, in sentences.

The reasons are those of `rules.ledger`, of names that a model writes at its parameters, and of the mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.core.rules import Rule, ledger, nnx, sentences
from inspector.core.rules.sentences import rule_words
from inspector.core.snapshot import Array, Mesh
from inspector.model import RulesSemantics

__all__ = ["Reason", "reasons", "rule_words"]


@dataclass(frozen=True)
class Reason:
    """One dimension: its name if it has one, the mesh axes that split it, and why, a sentence each."""

    dimension: int
    logical_axis: str | None
    axes: tuple[str, ...]
    sentences: tuple[str, ...]


def reasons(
    array: Array,
    mesh: Mesh,
    rules: Sequence[Rule] | None,
    semantics: RulesSemantics = "linen",
) -> tuple[Reason, ...] | None:
    """The reason for each dimension; None where nothing is known of how the array came to be split.

    `rules` is None for a model that names mesh axes itself, and `semantics` how they are read.
    """
    if array.spec is None:
        return None
    if array.group in ("activation", "gradient") and array.logical_axes is None:
        return tuple(
            Reason(dimension, None, axes or (), ("The compiler chose it; nothing was asked for.",))
            for dimension, axes in enumerate(array.spec)
        )
    trials = ()
    if array.logical_axes and rules is not None:
        try:
            trials = (ledger if semantics == "linen" else nnx.ledger)(array.logical_axes, rules)
        except ValueError as error:
            refused = f"Linen refuses it: {error}."
            return tuple(
                Reason(dimension, name, array.spec[dimension] or (), (refused,))
                for dimension, name in enumerate(array.logical_axes)
            )
    found = []
    for dimension, axes in enumerate(array.spec):
        name = array.logical_axes[dimension] if array.logical_axes else None
        if array.logical_axes is None:
            said = [_unruled(array, axes, rules)]
        elif name is None:
            said = ["It has no logical axis, and unspecified means unsharded."]
        elif rules is None:
            said = ["The rules are not known."]
        else:
            mine = [trial for trial in trials if trial.dimension == dimension]
            said = [sentences.outcome(trial, array.logical_axes, rules) for trial in mine]
            said = said or [_unmatched(name, semantics)]
        said += sentences.of_the_mesh(axes or (), _size(array, dimension), mesh)
        found.append(Reason(dimension, name, axes or (), tuple(said)))
    return tuple(found)


def _unmatched(name: str, semantics: RulesSemantics) -> str:
    if semantics == "linen":
        return f"No rule names {name}, and unspecified means unsharded."
    return f"No rule names {name}, so nnx takes it for the mesh axis of that name."


def _unruled(array: Array, axes: tuple[str, ...] | None, rules: Sequence[Rule] | None) -> str:
    if rules is None and (axes or array.box is not None):
        return "The model names the mesh axes of this array itself."
    return "Nothing names its dimensions, and unspecified means unsharded."


def _size(array: Array, dimension: int) -> int | None:
    return None if array.shape is None else array.shape[dimension]
