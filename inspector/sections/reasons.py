"""Why a collective exists, as one sentence in terms of the program."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.compiled.op_name import parse_op_name
from inspector.core.collectives import axes_text
from inspector.core.formatting import and_text, spec_text
from inspector.core.snapshot import Collective, Conflict, ConflictSide, Program

_SUMS = frozenset({"all-reduce", "reduce-scatter"})
_PRODUCTS = frozenset({"dot", "dot_general", "conv_general_dilated", "ragged_dot", "einsum"})
_READS = frozenset({"gather", "dynamic_slice", "take", "dynamic-slice", "_take"})
_UPDATES = frozenset({"scatter", "scatter-add", "scatter_add", "dynamic_update_slice"})
# The result of each reduction other than a sum.
_OTHERS = {
    "reduce_max": "the largest value",
    "reduce_min": "the smallest value",
    "argmax": "the place of the largest value",
    "argmin": "the place of the smallest value",
    "reduce_and": "whether all are true",
    "reduce_or": "whether one is true",
    "reduce_prod": "the product",
}
_WRITTEN = frozenset({"psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant",
                      "psum_scatter", "reduce_scatter", "all_to_all", "ppermute"})  # fmt: skip


def reason(program: Program, one: Collective) -> str | None:
    """Return why a collective is there; None if its operation is unknown.

    A matrix product whose operands are sharded over the dimension that it sums is followed by an all-reduce,
    and an operand that an operation uses in another sharding is gathered or moved.
    """
    if one.mesh_axes is None and one.axis_parts is None:
        return None
    resharded = next((c for c in program.conflicts or () if one.name in c.collectives), None)
    if resharded is not None:
        return _of_conflict(resharded, one)
    primitive = parse_op_name(one.op_name)[0].primitive
    if not primitive:
        return None
    axes = axes_text(one)
    if primitive in _WRITTEN:
        return f"The code itself asks for it: {primitive} over {axes}, inside of a shard_map."
    if one.op in _SUMS:
        return _of_sum(primitive, axes, one.op)
    what = f" of {_named(one.arrays)}" if one.arrays else ""
    return (
        f"{primitive} needs its data in another sharding than they have: the {one.op} moves shards{what} "
        f"along {axes}."
    )


def _of_sum(primitive: str, axes: str, op: str) -> str:
    adds = "adds them" if op == "all-reduce" else "adds them, and each device keeps its part"
    if primitive in _PRODUCTS:
        return (
            f"{primitive} sums over a dimension that is sharded over {axes}: each device has a partial sum, "
            f"and the {op} {adds}."
        )
    if primitive in _READS:
        return (
            f"{primitive} reads along a dimension that is sharded over {axes}: only one device has each "
            f"element, the others have zeros, and the {op} {adds}."
        )
    if primitive in _UPDATES:
        return (
            f"{primitive} gets updates that are sharded over {axes}: each device has a sum of some of them, "
            f"and the {op} {adds}."
        )
    if primitive in _OTHERS:
        return (
            f"{primitive} reduces a dimension that is sharded over {axes}: each device has "
            f"{_OTHERS[primitive]} of its part, and the {op} combines them."
        )
    return (
        f"{primitive} reduces a dimension that is sharded over {axes}: each device has the result of its "
        f"part, and the {op} {adds if 'sum' in primitive else 'combines them'}."
    )


def _of_conflict(conflict: Conflict, one: Collective) -> str:
    side = next((side for side in conflict.sides if side.spec != side.used), conflict.sides[0])
    before, after = spec_text(side.spec), spec_text(side.used)
    if side.value.startswith("result"):
        before, after = after, before
    moves = (
        f"the {one.op} over {axes_text(one)} {'collects' if one.op == 'all-gather' else 'moves'} it"
    )
    if conflict.operation == "sharding_constraint":
        where = f" ({conflict.source})" if conflict.source else ""
        asked = f"a sharding constraint{where} asks for {after}"
        return f"The value is sharded as {before}, and {asked}: {moves}."
    name = _named(one.arrays) if one.arrays else _side_name(side)
    return f"{name} is sharded as {before}, and {conflict.operation} uses it as {after}: {moves}."


def _side_name(side: ConflictSide) -> str:
    kind, _, number = side.value.partition(" ")
    return f"{kind.capitalize()} {number}"


def _named(arrays: Sequence[str]) -> str:
    return and_text(list(arrays[:2])) + (f" and {len(arrays) - 2} more" if len(arrays) > 2 else "")
