"""FLOPs of Pallas kernels for TPUs that state no cost, from the matrix products in their bodies.

The custom call has the body of the kernel and its grid. The body runs once for each point of the grid, so its
products count that often. A branch counts at the points where its condition holds, if this depends on the
grid alone. If products run in other branches, or in loops of unknown length, or if there are none, the FLOPs
stay unknown.
"""

import base64
import binascii
import functools
import math
import operator
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from jax.extend.mlir import ir

from inspector.hlo import kernel_costs
from inspector.jax_private import mosaic

_BODY = re.compile(r'(\\?")body\\?"\s*+:\s*+\\?"([A-Za-z0-9+/=]{8,})\\?"')
_LONGEST_CONFIG = 2_000  # characters of the configuration of a call after the body
_MOST_POINTS = 50_000  # of a grid whose branches are followed
_MULTIPLY_ADD = 2  # FLOPs
# A value of the body at each point of the grid, or None if it depends on data.
_Values = dict[Any, Any]


class _Unknown(Exception):
    """Products run as often as data says."""


_Text = TypeVar("_Text", str, "str | None")


def with_costs(text: _Text) -> _Text:
    """Return HLO text in which the kernels that state no cost have one, if it follows from their bodies."""
    return text if text is None or "tpu_custom_call" not in text else _with_costs(text)


def _with_costs(text: str) -> str:
    pieces, end = list[str](), 0
    bodies = list(_BODY.finditer(text))
    for body, following in zip(bodies, [*bodies[1:], None], strict=True):
        after = len(text) if following is None else following.start()
        if kernel_costs.ESTIMATE.search(text, body.end(), min(after, body.end() + _LONGEST_CONFIG)):
            continue
        if flops := _flops(body[2]):
            quote = body[1]
            estimate = f"{quote}cost_estimate{quote}:{{{quote}flops{quote}:{quote}{flops}{quote}}},"
            pieces += [text[end : body.start()], estimate]
            end = body.start()
    return "".join([*pieces, text[end:]])


@functools.lru_cache(maxsize=256)  # layers have the same kernel
def _flops(body: str) -> int | None:
    """Return the FLOPs of the products of one execution; None if they are unknown, or if there are none."""
    try:
        module = mosaic.parse(base64.b64decode(body, validate=True))
        return products(module) or None
    except (binascii.Error, ir.MLIRError, UnicodeDecodeError, IndexError, _Unknown):
        return None


def products(module: ir.Module) -> int:
    """Return the FLOPs of the matrix products of a kernel.

    Raises:
      _Unknown: they depend on data, or the grid does.
    """
    main = module.body.operations[0]
    attributes = main.operation.attributes
    grid = "iteration_bounds" in attributes
    bounds = list(ir.DenseI64ArrayAttr(attributes["iteration_bounds"])) if grid else []
    if min(bounds, default=1) < 1:
        raise _Unknown
    points, block, values = math.prod(bounds), main.operation.regions[0].blocks[0], _Values()
    if points > _MOST_POINTS:
        return _of_block(block, values, np.array([points]))
    if bounds:
        positions = np.indices(bounds).reshape(len(bounds), -1)
        values.update(zip(block.arguments, positions, strict=False))
    return _of_block(block, values, np.ones(points, dtype=np.int64))


def _of_block(block: ir.Block, values: _Values, runs: np.ndarray | None) -> int:
    """Return the FLOPs of a block. `runs` is how often it runs at each point; None if this is unknown."""
    total = 0
    for view in block.operations:
        operation = view.operation
        name = operation.name.removeprefix("stable_mosaic.")
        if name in ("tpu.matmul", "vector.contract", "vector.contraction"):
            if runs is None:
                raise _Unknown
            total += _product(operation) * int(runs.sum())
        elif name == "scf.for":
            total += _of_loop(operation, values, runs)
        elif name == "scf.if":
            condition = values.get(operation.operands[0])
            for region, taken in zip(operation.regions, (True, False), strict=False):
                for inner in region.blocks:
                    inside = None
                    if runs is not None and condition is not None:
                        inside = runs * (condition.astype(bool) == taken)
                    total += _of_block(inner, values, inside)
        else:
            # A region of another kind runs once, but that of a `while` as often as data says.
            inside = None if name == "scf.while" else runs
            inner_blocks = [inner for region in operation.regions for inner in region.blocks]
            total += sum(_of_block(inner, values, inside) for inner in inner_blocks)
            compute = _INTEGERS.get(name)
            if compute is not None and len(operation.results) == 1:
                operands = [values.get(operand) for operand in operation.operands]
                values[operation.results[0]] = compute(operation, operands)
    return total


def _of_loop(operation: ir.Operation, values: _Values, runs: np.ndarray | None) -> int:
    first, end, step = (values.get(operand) for operand in list(operation.operands)[:3])
    inside = None
    if runs is not None and first is not None and end is not None and step is not None and np.all(step > 0):
        inside = runs * np.maximum(0, -(-(end - first) // step))
    return sum(_of_block(inner, values, inside) for inner in operation.regions[0].blocks)


def _product(operation: ir.Operation) -> int:
    """Return the FLOPs of a product. Arrays of three dimensions have batches first."""
    left, right, *_ = (_sizes(operand.type) for operand in operation.operands)
    result = _sizes(operation.results[0].type)
    batches = result[0] if len(result) == 3 else 1
    outputs = math.prod(result)
    summed = math.isqrt(math.prod(left) * math.prod(right) // max(1, outputs * batches))
    if len(result) not in (2, 3) or batches * outputs * summed**2 != math.prod(left) * math.prod(right):
        raise _Unknown
    return _MULTIPLY_ADD * outputs * summed


def _sizes(type_: ir.Type) -> list[int]:
    return list(ir.VectorType(type_).shape)


def _same(value: np.ndarray) -> np.ndarray:
    return value


def _constant(operation: ir.Operation, _: list[Any]) -> np.int64 | None:
    value = operation.attributes["value"]
    return np.int64(value.value) if isinstance(value, (ir.IntegerAttr, ir.BoolAttr)) else None


def _with(function: Callable[..., Any]) -> Callable[[Any, list[Any]], Any]:
    def compute(_: ir.Operation, operands: list[Any]) -> np.ndarray | None:
        return None if any(operand is None for operand in operands) else function(*operands)

    return compute


def _compared(operation: ir.Operation, operands: list[Any]) -> np.ndarray | None:
    number = ir.IntegerAttr(operation.attributes["predicate"]).value
    # eq, ne, and signed and unsigned lt, le, gt, ge. Positions in a grid are not negative.
    compare = (operator.eq, operator.ne, *(operator.lt, operator.le, operator.gt, operator.ge) * 2)[number]
    return _with(compare)(operation, operands)


def _divided(left: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    return None if np.any(right == 0) else left // right


# Operations on integers, by name.
_INTEGERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "arith.constant": _constant,
    "arith.cmpi": _compared,
    "arith.select": _with(lambda chosen, yes, no: np.where(chosen, yes, no)),
    **{f"arith.{name}": _with(_same) for name in ("index_cast", "extsi", "extui", "trunci")},
    **{f"arith.{name}": _with(_divided) for name in ("divsi", "divui", "floordivsi")},
    "arith.addi": _with(operator.add),
    "arith.subi": _with(operator.sub),
    "arith.muli": _with(operator.mul),
    "arith.andi": _with(operator.and_),
    "arith.ori": _with(operator.or_),
    "arith.xori": _with(operator.xor),
    "arith.maxsi": _with(np.maximum),
    "arith.minsi": _with(np.minimum),
}
