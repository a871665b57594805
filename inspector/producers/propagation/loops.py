"""How often a loop of a StableHLO module runs its body."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxlib.mlir import ir

_SAME_VALUE = "sdy.sharding_constraint"


def comparison_direction(compare: Any) -> str:
    """Return the direction of a `stablehlo.compare`, such as `LT`."""
    return str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")


def trip_count(loop: Any) -> int | None:
    """Return how often a `stablehlo.while` runs its body, or None if it does not count by constants.

    JAX writes `scan` and `fori_loop` as a counter that starts at a constant, grows by a constant and is
    compared with a constant.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    compared = condition.operations[len(condition.operations) - 1].operation.operands[0].owner
    if isinstance(compared, ir.Block) or compared.operation.name != "stablehlo.compare":
        return None
    compare = compared.operation
    direction = comparison_direction(compare)
    counter, limit = compare.operands
    if not isinstance(counter.owner, ir.Block) or counter.owner != condition:
        return None
    number = ir.BlockArgument(counter).arg_number
    stop = _constant(limit, condition, loop)
    start = _constant(loop.operands[number], None, None)
    step = _step(body, number, loop)
    if stop is None or start is None or not step or direction not in ("LT", "LE", "GT", "GE", "NE"):
        return None
    if direction in ("LE", "GE"):
        stop += 1 if step > 0 else -1
    return max(0, -(-(stop - start) // step))


def _step(body: Any, number: int, loop: Any) -> int | None:
    returned = body.operations[len(body.operations) - 1].operation.operands[number]
    owner = returned.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "stablehlo.add":
        return None
    for one, other in (owner.operation.operands, tuple(owner.operation.operands)[::-1]):
        counts = isinstance(one.owner, ir.Block) and one.owner == body
        if counts and ir.BlockArgument(one).arg_number == number:
            return _constant(other, body, loop)
    return None


def _constant(value: Any, block: Any, loop: Any) -> int | None:
    """Return an integer constant; a value that the loop carries unchanged counts as its start."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        if block is None or owner != block or loop is None:
            return None
        number = ir.BlockArgument(value).arg_number
        body = loop.regions[1].blocks[0]
        kept = body.operations[len(body.operations) - 1].operation.operands[number]
        if kept != body.arguments[number]:
            return None
        return _constant(loop.operands[number], None, None)
    operation = owner.operation
    if operation.name == _SAME_VALUE:
        return _constant(operation.operands[0], block, loop)
    if operation.name not in ("stablehlo.constant", "sdy.constant"):
        return None
    dense = operation.attributes["value"]
    try:
        numbers = np.array(ir.DenseIntElementsAttr(dense))
    except (ValueError, TypeError):
        return None
    return int(numbers.reshape(-1)[0]) if numbers.size == 1 else None
