"""A rule, and the outcome of a rule for one dimension of an array."""

from __future__ import annotations

from dataclasses import dataclass

# (logical axis, mesh axes): several mesh axes split one dimension together; none leaves it whole.
Rule = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Trial:
    """One rule tried on one dimension of an array; `rule` and `dimension` count from 0.

    A rule that is passed over was so because another rule, `settled_by`, settles the dimension (an earlier
    one in Linen, a later one in nnx), or because a mesh axis, `busy_axis`, was taken by `busy_dimension`
    through the rule `busy_rule`.
    """

    rule: int
    dimension: int
    taken: bool
    settled_by: int | None = None
    busy_axis: str | None = None
    busy_dimension: int | None = None
    busy_rule: int | None = None
