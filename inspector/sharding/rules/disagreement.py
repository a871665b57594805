"""Find the dimensions for which Flax Linen and Flax nnx read the same rules differently."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inspector.sharding.rules import linen, nnx
from inspector.sharding.rules.rule import Rule

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
    by_name = nnx.partition_spec(logical_axes, rules)
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
