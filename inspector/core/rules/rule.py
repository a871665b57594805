"""A rule, and the outcome of a rule for one dimension of an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
