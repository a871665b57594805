"""The rule ledger of one array: the outcome of each rule in Linen and in nnx.

A rule that names no dimension of the array has no entry. A dimension that no rule names has an entry
without a rule at the end. An array without logical axes has no ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.records.snapshot import Array, Mesh, Spec
from inspector.sharding.rules import linen, nnx
from inspector.sharding.rules.rule import Rule, RulesSemantics, Trial, of_the_mesh, outcome_alone


@dataclass(frozen=True)
class RuleEntry:
    """One rule on one dimension, or a dimension that no rule names (`rule` is None).

    taken_by_linen, taken_by_nnx: whether the rule decides the dimension.
    linen, nnx: the same in words, with the reason.
    """

    rule: int | None
    dimension: int
    logical_axis: str | None
    axes: tuple[str, ...]
    taken_by_linen: bool
    taken_by_nnx: bool
    linen: str
    nnx: str


@dataclass(frozen=True)
class Ledger:
    """All entries of an array, and the specs that follow.

    linen, nnx: the spec that follows from the rules. `linen` is None if Linen rejects the array, and
    `linen_refusal` gives the reason. `nnx_refusals` are the reasons why JAX would reject the spec of nnx.
    follows: whether the array is sharded by the spec of its model, as `follows` returns it.
    """

    entries: tuple[RuleEntry, ...]
    linen: Spec | None
    nnx: Spec
    linen_refusal: str | None
    nnx_refusals: tuple[str, ...]
    follows: bool | None


def ledger_of(
    array: Array, mesh: Mesh | None, rules: Sequence[Rule] | None, semantics: RulesSemantics = "linen"
) -> Ledger | None:
    """Return the ledger of an array. Return None if its logical axes or the rules are unknown.

    `semantics` is the reading that the array's own spec is compared with.
    """
    if array.logical_axes is None or rules is None:
        return None
    names = array.logical_axes
    in_linen: dict[tuple[int, int], Trial] = {}
    spec, refusal = None, None
    try:
        in_linen = {(trial.rule, trial.dimension): trial for trial in linen.ledger(names, rules)}
        spec = linen.partition_spec(names, rules)
    except ValueError as error:
        refusal = str(error)
    in_nnx = nnx.ledger(names, rules)
    entries = [
        _entry(trial, in_linen.get((trial.rule, trial.dimension)), array, mesh, rules) for trial in in_nnx
    ]
    ruled = {trial.dimension for trial in in_nnx}
    entries += [_unruled(dimension, name) for dimension, name in enumerate(names) if dimension not in ruled]
    by_name = nnx.partition_spec(names, rules)
    return Ledger(
        tuple(entries),
        spec,
        by_name,
        refusal,
        () if mesh is None else nnx.refusals(by_name, mesh),
        follows(array, spec if semantics == "linen" else by_name, mesh),
    )


def follows(array: Array, spec: Spec | None, mesh: Mesh | None) -> bool | None:
    """Return whether the array is sharded by `spec`, ignoring axes of size 1. None if unknown."""
    if array.spec is None or spec is None or mesh is None:
        return None
    return without_size_1(array.spec, mesh) == without_size_1(spec, mesh)


def without_size_1(spec: Spec, mesh: Mesh) -> Spec:
    """Return the spec without mesh axes of size 1. Axes that the mesh lacks are kept."""
    trivial = {axis.name for axis in mesh.axes if axis.size == 1}
    return tuple(tuple(axis for axis in axes or () if axis not in trivial) or None for axes in spec)


def _entry(
    trial: Trial, in_linen: Trial | None, array: Array, mesh: Mesh | None, rules: Sequence[Rule]
) -> RuleEntry:
    names, axes = array.logical_axes or (), rules[trial.rule][1]

    def words(trial: Trial) -> str:
        parts = [outcome_alone(trial, names, rules)]
        if trial.taken and mesh is not None:
            size = None if array.shape is None else array.shape[trial.dimension]
            parts += [note.rstrip(".") for note in of_the_mesh(axes, size, mesh)]
        return ". ".join(parts)

    return RuleEntry(
        rule=trial.rule,
        dimension=trial.dimension,
        logical_axis=names[trial.dimension],
        axes=axes,
        taken_by_linen=in_linen is not None and in_linen.taken,
        taken_by_nnx=trial.taken,
        linen="refused: a logical axis occurs twice" if in_linen is None else words(in_linen),
        nnx=words(trial),
    )


def _unruled(dimension: int, name: str | None) -> RuleEntry:
    if name is None:
        reason = "no logical axis, so it stays whole"
        return RuleEntry(
            None,
            dimension,
            logical_axis=None,
            axes=(),
            taken_by_linen=False,
            taken_by_nnx=False,
            linen=reason,
            nnx=reason,
        )
    return RuleEntry(
        rule=None,
        dimension=dimension,
        logical_axis=name,
        axes=(),
        taken_by_linen=False,
        taken_by_nnx=True,  # the name itself decides
        linen=f"no rule for {name}, so it stays whole",
        nnx=f"no rule for {name}, which is taken for a mesh axis",
    )
