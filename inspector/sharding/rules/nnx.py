"""Map logical axes to mesh axes as Flax nnx does, and find where Flax Linen reads the same rules differently.

The last rule for a name wins. A name without a rule is taken as a mesh axis. nnx does not check the result:
two dimensions may get one mesh axis, and a name may not be a mesh axis, which JAX rejects when the array is
created. This is `flax.core.spmd.from_sharding_rules` as `flax.nnx.get_partition_spec` calls it, without JAX.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.records.snapshot import Mesh, Spec
from inspector.sharding.rules import linen
from inspector.sharding.rules.rule import Rule, Trial


def ledger(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> tuple[Trial, ...]:
    """Return the rules that name a dimension of the array, in order. The last rule for a name is taken.

    A name that occurs at two dimensions is looked up at both.
    """
    last = {name: number for number, (name, _) in enumerate(rules)}
    return tuple(
        Trial(number, dimension, number == last[name], None if number == last[name] else last[name])
        for number, (name, _) in enumerate(rules)
        for dimension, named in enumerate(logical_axes)
        if named == name
    )


def partition_spec(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> Spec:
    """Return the mesh axes of each dimension. A name without a rule is a mesh axis itself."""
    table = dict(rules)
    return tuple(None if name is None else table.get(name, (name,)) or None for name in logical_axes)


def refusals(spec: Spec, mesh: Mesh) -> tuple[str, ...]:
    """Return one sentence for each reason why JAX would reject this spec on this mesh."""
    used = Counter(axis for axes in spec for axis in axes or ())
    unknown = [axis for axis in used if axis not in mesh.axis_names]
    repeated = [axis for axis, count in used.items() if count > 1]
    return (
        *(f"{axis} is not an axis of the mesh, which JAX refuses" for axis in unknown),
        *(f"mesh axis {axis} would split two dimensions, which JAX refuses" for axis in repeated),
    )


Cause = Literal["order", "unmatched", "conflict", "repeated"]

EXPLANATIONS: dict[Cause, str] = {
    "order": "a name has several rules: Linen takes the first whose mesh axes are free, nnx the last",
    "unmatched": "a name has no rule: Linen leaves the dimension whole, nnx takes the name for a mesh axis",
    "conflict": "two names want one mesh axis: Linen gives it to the rule that comes first, nnx to both",
    "repeated": "a name occurs twice in the array: Linen refuses it, nnx gives both the same mesh axes",
}


@dataclass(frozen=True)
class Disagreement:
    """The mesh axes of one dimension in Linen and in nnx. `linen` is None if Linen rejects the array."""

    dimension: int
    logical_axis: str
    linen: tuple[str, ...] | None
    nnx: tuple[str, ...]
    cause: Cause


def disagreements(logical_axes: Sequence[str | None], rules: Sequence[Rule]) -> tuple[Disagreement, ...]:
    """Return the dimensions that Linen and nnx would shard differently."""
    by_name = partition_spec(logical_axes, rules)
    try:
        trials = linen.ledger(logical_axes, rules)
    except ValueError:
        return tuple(
            Disagreement(dimension, name, None, by_name[dimension] or (), "repeated")
            for dimension, name in enumerate(logical_axes)
            if name is not None and list(logical_axes).count(name) > 1
        )
    in_order = linen.partition_spec(logical_axes, rules)
    last = {trial.dimension: trial for trial in trials}

    def cause(dimension: int) -> Cause:
        if dimension not in last:
            return "unmatched"
        # In a conflict, nnx takes the rule that Linen passes over.
        return "order" if last[dimension].busy_axis is None else "conflict"

    return tuple(
        Disagreement(dimension, name, first or (), second or (), cause(dimension))
        for dimension, (name, first, second) in enumerate(zip(logical_axes, in_order, by_name, strict=True))
        if name is not None and first != second
    )
