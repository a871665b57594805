"""Explain why each dimension of an array is sharded or not, in sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.model import RulesSemantics
from inspector.records.snapshot import Array, Mesh
from inspector.sharding.rules import Rule, ledger, nnx
from inspector.sharding.rules.rule import Trial, of_the_mesh, outcome, rule_words

__all__ = ["Reason", "reasons", "rule_words"]


@dataclass(frozen=True)
class Reason:
    """A dimension, its logical axis, the mesh axes that shard it, and sentences that explain why."""

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
    """Return the reason for each dimension; None if the array has no known spec.

    `rules` is None for a model that names mesh axes itself. `semantics` says how they are applied.
    """
    if array.spec is None:
        return None
    names = array.logical_axes or (None,) * len(array.spec)
    trials: tuple[Trial, ...] = ()
    refused = ""
    if array.logical_axes and rules is not None and array.pattern is None:
        try:
            trials = (ledger if semantics == "linen" else nnx.ledger)(names, rules)
        except ValueError as error:
            refused = f"Linen rejects it: {error}."

    def sentences(dimension: int, axes: tuple[str, ...], name: str | None) -> tuple[str, ...]:
        if refused:
            return (refused,)
        if array.group in ("activation", "gradient") and array.logical_axes is None:
            return ("The compiler chose it: the model has no constraint on it.",)
        if array.pattern is not None:
            texts = [f"The pattern {array.pattern} of state_specs is found in its path."]
        elif array.logical_axes is None:
            texts = [_unruled(array, axes, rules)]
        elif name is None:
            texts = ["It has no logical axis, and unspecified means unsharded."]
        elif rules is None:
            texts = ["The rules are unknown."]
        else:
            tried = [trial for trial in trials if trial.dimension == dimension]
            texts = [outcome(trial, names, rules) for trial in tried] or [_unmatched(name, semantics)]
        size = None if array.shape is None else array.shape[dimension]
        return (*texts, *of_the_mesh(axes, size, mesh))

    return tuple(
        Reason(dimension, name, axes or (), sentences(dimension, axes or (), name))
        for dimension, (axes, name) in enumerate(zip(array.spec, names, strict=True))
    )


def _unmatched(name: str, semantics: RulesSemantics) -> str:
    if semantics == "linen":
        return f"No rule names {name}, and unspecified means unsharded."
    return f"No rule names {name}, so nnx takes it for the mesh axis of that name."


def _unruled(array: Array, axes: tuple[str, ...] | None, rules: Sequence[Rule] | None) -> str:
    if rules is None and (axes or array.box is not None):
        return "The model itself names the mesh axes of this array."
    return "It has no logical axes, and unspecified means unsharded."
