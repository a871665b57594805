"""FLOPs of one execution of an instruction, as defined by XLA's HloCostAnalysis.

An elementwise operation counts 1 per element of its result, of any type, which `opcodes` contains. A
transcendental operation (exp, tanh, sqrt, power …) counts 0, because XLA counts those separately. A
multiply-add counts 2.
Source: xla/service/hlo_cost_analysis.cc of OpenXLA.
"""

import functools
import math
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from inspector.hlo import attention_kernels, kernel_costs, ragged_rows, text
from inspector.hlo.module import Computation, Instruction, operand_shapes
from inspector.hlo.shapes import MAX_COUNT, Shape
from inspector.records.statistics import sum_known

MULTIPLY_ADD = 2  # FLOPs

# Computation name → FLOPs of one application, or None if unknown.
Applied = Callable[[str], int | None]

_NAME = rf"%?+({text.NAME})"
_COUNT = r"(\d{1,18})\b"
_LIST = r"\{([\d,\s]*+)\}"
# In the backend_config of a library call, as JSON or as a string of JSON.
_CONTRACTED_BY_LIBRARY = re.compile(r'\\?"lhs_contracting_dimensions\\?"\s*+:\s*+\[([\d,\s"\\]*+)\]')
_TRANSPOSED = re.compile(r'\\?"transpose_a\\?"\s*+:\s*+true')
_NUMBER = re.compile(r"\d{1,18}")
_SIGNED = re.compile(r"-?\d{1,18}\Z")
# Limit of the positions that are tried in each dimension of a strided or dilated convolution.
_MAX_TRIED = 4096


class Product(NamedTuple):
    """FLOPs of a matrix product or convolution, and the wider type of its two operands."""

    flops: int | None
    dtype: str | None


def product(computation: Computation, instruction: Instruction) -> Product | None:
    """Return the FLOPs of a dot, a convolution, a library call like these, or a kernel that states them.

    Those of an attention kernel are known. Return None for any other instruction.
    """
    opcode = instruction.opcode
    cost = kernel_costs.stated(instruction)
    if cost is not None and cost.flops is not None:
        dtype = kernel_costs.operand_type(operand_shapes(computation, instruction))
        return Product(ragged_rows.used(cost.flops, computation, instruction), dtype)
    if attention := attention_kernels.kernel(instruction):
        operands = operand_shapes(computation, instruction)
        flops, dtype = attention_kernels.flops(attention, instruction, operands)
        return Product(_countable(flops), dtype)
    count = _PRODUCTS.get(opcode) or _library(instruction)
    if count is None:
        return None
    lhs, rhs, *_ = [*operand_shapes(computation, instruction), None, None]
    result = product_shape(instruction)
    if lhs is None or rhs is None or result is None:
        return Product(None, None)
    wider = rhs.dtype if (rhs.element_bits or 0) > (lhs.element_bits or 0) else lhs.dtype
    flops = ragged_rows.used(count(instruction, lhs, rhs, result), computation, instruction)
    return Product(_countable(flops), wider)


def product_shape(instruction: Instruction) -> Shape | None:
    """Return the shape of the result; of a library call like `product` without its workspace.

    The workspace of cuBLAS on an H100 is 32 MiB, and most calls use little of it.
    """
    shape = instruction.shape
    if _library(instruction):
        return _first(shape)
    if shape is not None and shape.parts and instruction.target.startswith(attention_kernels.CUDNN):
        return replace(shape, parts=shape.parts[:-1])
    return shape


def is_grouped(instruction: Instruction) -> bool:
    """Return whether a product multiplies groups of rows, each with its own matrix, as experts do.

    Attention has two batch dimensions: sequences, and heads.
    """
    if instruction.opcode == "ragged-dot":
        return True
    return instruction.opcode == "dot" and len(listed(instruction, "lhs_batch_dims") or ()) == 1


class GroupedProduct(NamedTuple):
    """The product of one group of rows: the average number of rows, and the sides of its matrix."""

    rows: float
    sides: tuple[int, int]


def group_of(computation: Computation, instruction: Instruction) -> GroupedProduct | None:
    """Return the sizes of a grouped product; None for any other, without rows, or if they are unknown.

    Of a dot, the rows are the part of its dimensions that has two: sequences, and places in a buffer.
    """
    lhs, rhs, *_ = [*operand_shapes(computation, instruction), None, None]
    if not is_grouped(instruction) or lhs is None or rhs is None:
        return None
    contracted, ragged = (listed(instruction, f"lhs_{kind}_dims") or [] for kind in ("contracting", "ragged"))
    parts = [
        _sizes_without(lhs, contracted, listed(instruction, "lhs_batch_dims") or ()),
        [lhs.dimensions[number] for number in contracted],
        _sizes_without(rhs, *(listed(instruction, f"rhs_{kind}_dims") or () for kind in _OF_RHS)),
    ]
    if instruction.opcode == "ragged-dot":
        of_gradient = bool(set(ragged) & set(contracted))
        matrices = instruction.shape if of_gradient else rhs
        groups = matrices.dimensions[0] if matrices is not None and matrices.dimensions else None
        rows = parts.pop(1 if of_gradient else 0)
    else:
        groups = 1
        rows = next((part for part in parts if len(part) > 1), [])
        parts = [part for part in parts if part is not rows]
    sides = [part[0] for part in parts if len(part) == 1]
    if not groups or not rows or None in (*rows, *sides) or len(sides) != 2:
        return None
    used = ragged_rows.used(math.prod(size or 0 for size in rows), computation, instruction)
    return GroupedProduct(used / groups, (sides[0] or 0, sides[1] or 0)) if used else None


_OF_RHS = ("batch", "contracting", "group")


def _sizes_without(shape: Shape, *numbers: Collection[int]) -> list[int | None]:
    left_out = set().union(*numbers)
    return [size for number, size in enumerate(shape.dimensions) if number not in left_out]


def contracted_sizes(computation: Computation, instruction: Instruction) -> tuple[int, ...] | None:
    """Return the sizes of the contracted dimensions of a dot; None for any other instruction."""
    contracted = listed(instruction, "lhs_contracting_dims") if instruction.opcode == "dot" else None
    lhs = next(iter(operand_shapes(computation, instruction)), None)
    if contracted is None or lhs is None:
        return None
    sizes = [lhs.dimensions[number] for number in contracted]
    return None if None in sizes else tuple(size or 0 for size in sizes)


def _library(instruction: Instruction) -> Callable[..., int | None] | None:
    """Return how the FLOPs of a call of a library are counted; None for any other instruction."""
    if instruction.opcode != "custom-call":
        return None
    return next((count for name, count in _LIBRARY if instruction.target.startswith(name)), None)


def others(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    """Return the FLOPs of an instruction that is neither elementwise nor a product; 0 for most.

    They include the computation that it applies to elements, but not the computations that it calls. Return
    None for a custom call that is not of a known library.
    """
    if instruction.opcode == "custom-call":
        flops = kernel_costs.flops(instruction, operand_shapes(computation, instruction))
        return _countable(flops)
    count = _OTHERS.get(instruction.opcode)
    if count is None:
        return 0
    operation = _Operation(instruction, operand_shapes(computation, instruction), applied)
    return _countable(count(operation))


def _dot(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    return _contraction(lhs, result, listed(instruction, "lhs_contracting_dims") or [])


def _ragged_dot(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    """Each row is multiplied with the matrix of its group only."""
    whole = _dot(instruction, lhs, rhs, result)
    contracted, ragged = (listed(instruction, f"lhs_{kind}_dims") for kind in ("contracting", "ragged"))
    if whole is None or contracted is None or ragged is None:
        return None
    if not set(ragged) & set(contracted):
        return whole
    # The contracted dimension is ragged: the groups split it, and are the first dimension of the result.
    groups = result.dimensions[0] if result.dimensions else None
    return whole // groups if groups else None if groups is None else 0


def _library_dot(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    match = _CONTRACTED_BY_LIBRARY.search(instruction.attributes_text)
    return _contraction(lhs, result, _numbers(match[1])) if match else None


def _onednn_dot(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    from_end = 2 if _TRANSPOSED.search(instruction.attributes_text) else 1
    return _contraction(lhs, result, [len(lhs.dimensions) - from_end])


def _contraction(lhs: Shape, result: Shape, contracted: list[int]) -> int | None:
    if result.elements is None or lhs.elements is None:
        return None
    if not all(0 <= number < len(lhs.dimensions) for number in contracted):
        return None
    summed = math.prod(lhs.dimensions[number] or 0 for number in set(contracted))
    return MULTIPLY_ADD * result.elements * summed


def _convolution(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    """Count the multiply-adds without those of padding and of dilation gaps."""
    labels: list[str] = re.split(r"_|->", instruction.attributes.get("dim_labels", ""))
    arrays = (lhs, rhs, result)
    ranks = [len(array.dimensions) for array in arrays]
    if any(array.elements is None for array in arrays) or [*map(len, labels)] != ranks:
        return None
    of_lhs, of_rhs, of_result = (
        {name: size or 0 for name, size in zip(label, array.dimensions, strict=True)}
        for label, array in zip(labels, arrays, strict=True)
    )
    spatial = sorted(label for label in of_lhs if label.isdecimal())
    window = _window(instruction, len(spatial))
    if window is None or not {"b", "f"} <= of_lhs.keys() or "f" not in of_result:
        return None
    features, batches = (
        int(_written(instruction, f"{kind}_group_count", _COUNT) or 1) for kind in ("feature", "batch")
    )
    if not features or not batches:
        return None
    count = of_lhs["f"] // features * of_result["f"] * (of_lhs["b"] // batches)
    for label, dimension in zip(spatial, window, strict=True):
        if label not in of_rhs or label not in of_result:
            return None
        pairs = _positions(of_lhs[label], of_rhs[label], of_result[label], dimension)
        if pairs is None:
            return None
        count *= pairs
    return MULTIPLY_ADD * count


_PRODUCTS = {"dot": _dot, "scaled-dot": _dot, "ragged-dot": _ragged_dot, "convolution": _convolution}
# By prefix of the target: gemm, lt$matmul and lt$matmul$f8, and convolutions with fused epilogues.
_LIBRARY = (
    ("__cublas$gemm", _library_dot),
    ("__cublas$lt$", _library_dot),
    ("__onednn$matmul", _onednn_dot),
    # The gradients of a convolution exchange its input or its filter with its output.
    ("__cudnn$convBackwardInput", lambda i, lhs, rhs, result: _convolution(i, result, rhs, lhs)),
    ("__cudnn$convBackwardFilter", lambda i, lhs, rhs, result: _convolution(i, lhs, result, rhs)),
    ("__cudnn$conv", _convolution),
)


class _Dimension(NamedTuple):
    """One dimension of a window; `base` and `window` are dilations."""

    size: int
    stride: int
    low: int
    high: int
    base: int
    window: int


_WINDOW = {"size": "1", "stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1"}


def _window(instruction: Instruction, rank: int) -> list[_Dimension] | None:
    """Return the `rank` dimensions of `window={size=3x3 stride=2x2 pad=1_1x0_0 …}`.

    Return None if they do not match.
    """
    fields = text.fields(instruction.attributes.get("window", ""))
    columns = [
        fields[key].split("x") if key in fields else [default] * rank for key, default in _WINDOW.items()
    ]
    if any(len(column) != rank for column in columns):
        return None
    dimensions = []
    for row in zip(*columns, strict=True):
        numbers = [number for field in row for number in field.split("_")]
        if len(numbers) != 6 or "_" not in row[2] or not all(map(_SIGNED.match, numbers)):
            return None
        dimension = _Dimension(*map(int, numbers))
        if min(dimension.size, dimension.stride, dimension.base, dimension.window) < 1:
            return None
        dimensions.append(dimension)
    return dimensions


@functools.lru_cache(maxsize=1024)
def _positions(inputs: int, kernel: int, outputs: int, along: _Dimension) -> int | None:
    """Return the pairs of kernel position k and output position o that use an element of the input.

    For these, o·stride + k·(window dilation) − padding is an input position times the base dilation. Return
    None if there are too many positions to try.
    """
    if along.stride == along.base == along.window == 1:
        most = along.low + inputs - 1
        return _below(kernel, outputs, most) - _below(kernel, outputs, along.low - 1)
    # For each position of one, the positions of the other form an arithmetic progression.
    tried, tried_step, counted, step = kernel, along.window, outputs, along.stride
    if tried > counted:
        tried, tried_step, counted, step = outputs, along.stride, kernel, along.window
    if tried > _MAX_TRIED:
        return None
    common = math.gcd(step, along.base)
    period = along.base // common
    inverse = pow(step // common, -1, period) if period > 1 else 0
    total = 0
    for place in range(tried):
        short = along.low - place * tried_step  # of the first element of the input
        if short % common:
            continue
        first = short // common * inverse % period
        least = max(-(-short // step), 0)
        most = min((short + (inputs - 1) * along.base) // step, counted - 1)
        least += (first - least) % period
        total += max((most - least) // period + 1, 0)
    return total


def _below(kernel: int, outputs: int, most: int) -> int:
    """Return the number of pairs k < kernel, o < outputs with k + o at most `most`."""

    def triangle(side: int) -> int:
        return side * (side + 1) // 2 if side > 0 else 0

    side = most + 1
    outside = triangle(side - kernel) + triangle(side - outputs)
    return triangle(side) - outside + triangle(side - kernel - outputs)


class _Operation(NamedTuple):
    """An instruction with the shapes of its operands."""

    instruction: Instruction
    operands: list[Shape | None]
    applied: Applied

    def elements(self, number: int) -> int | None:
        """Return the elements of an operand; None if unknown."""
        return _elements(self.operands[number]) if number < len(self.operands) else None

    def applications(self, times: int | None, key: str = "to_apply") -> int | None:
        """Return the FLOPs of applying the computation named by this attribute `times` times."""
        if not times:
            return times
        name = _written(self.instruction, key, _NAME)
        flops = self.applied(name) if name is not None else None
        return None if flops is None else times * flops


def _reduce(operation: _Operation) -> int | None:
    inputs, outputs = operation.elements(0), _elements(_first(operation.instruction.shape))
    if inputs is None or outputs is None:
        return None
    return operation.applications(max(inputs - outputs, 0))


def _reduce_window(operation: _Operation) -> int | None:
    result = _first(operation.instruction.shape)
    if result is None or result.elements is None:
        return None
    window = _window(operation.instruction, len(result.dimensions))
    if window is None:
        return None
    times = (math.prod(dimension.size for dimension in window) - 1) * result.elements
    # XLA counts a window that covers the whole dimension as a reduction and a broadcast.
    sides = [
        (dimension, length)
        for dimension, length in zip(window, result.dimensions, strict=True)
        if dimension.size != 1
    ]
    padded = sum(dimension.low != 0 or dimension.high != 0 for dimension in window)
    if len(sides) == 1 and padded == 1 and operation.instruction.shape is result:
        ((dimension, length),) = sides
        around = dimension.low == dimension.high != 0 and dimension.size == 2 * dimension.low + 1
        if length and around and dimension.low == length - 1:
            times = result.elements // length + length - 1
    return operation.applications(times)


def _select_and_scatter(operation: _Operation) -> int | None:
    count = operation.elements(1)
    source = operation.operands[1] if len(operation.operands) > 1 else None
    window = _window(operation.instruction, len(source.dimensions)) if source else None
    if count is None or window is None:
        return None
    places = math.prod(dimension.size for dimension in window)
    return sum_known(
        [operation.applications(count * (places - 1), "select"), operation.applications(count, "scatter")]
    )


def _scan(operation: _Operation) -> int | None:
    """Count one application per position along the dimension. XLA counts one in all."""
    along = _numbers(operation.instruction.attributes.get("dimensions", ""))
    source = operation.operands[0] if operation.operands else None
    lengths = source.dimensions if source is not None else ()
    known = len(along) == 1 and along[0] < len(lengths)
    return operation.applications(lengths[along[0]] if known else None)


def _all_reduce(operation: _Operation) -> int | None:
    """Count 1 per element, as XLA does for any number of devices."""
    shape = operation.instruction.shape
    if shape is not None and shape.parts is not None:
        return sum_known(part.elements for part in shape.parts)
    return _elements(shape)


def _sort(operation: _Operation) -> int | None:
    count = operation.elements(0)
    return None if count is None else count * (max(count, 1) - 1).bit_length()


def _fft(operation: _Operation) -> int | None:
    count = operation.elements(0)
    lengths = _numbers(operation.instruction.attributes.get("fft_length", ""))
    if count is None or len(lengths) > 3 or 0 in lengths:
        return None
    # One complex multiplication, which is four multiply-adds, per factor of 2.
    factors = math.prod(length.bit_length() - 1 for length in lengths)
    return MULTIPLY_ADD * 4 * factors * count


def _triangular_solve(operation: _Operation) -> int | None:
    matrix = operation.operands[0] if len(operation.operands) == 2 else None
    if matrix is None or not matrix.dimensions:
        return None
    sides, side = operation.elements(1), matrix.dimensions[-1]
    return None if sides is None or side is None else MULTIPLY_ADD * side * sides


def _cholesky(operation: _Operation) -> int | None:
    matrix = operation.operands[0] if operation.operands else None
    if matrix is None or matrix.elements is None or not matrix.dimensions:
        return None
    return (matrix.dimensions[-1] or 0) * matrix.elements // 3


_OTHERS: dict[str, Callable[[_Operation], int | None]] = {
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    # The updates follow the arrays and the indices.
    "scatter": lambda op: op.applications(op.elements(len(op.operands) // 2 + 1)),
    "select-and-scatter": _select_and_scatter,
    "map": lambda op: op.applications(_elements(op.instruction.shape)),
    "scan": _scan,
    "all-reduce": _all_reduce,
    "sort": _sort,
    # Each element is compared once, as in `library_calls`.
    "topk": lambda op: op.elements(0),
    "fft": _fft,
    "triangular-solve": _triangular_solve,
    "cholesky": _cholesky,
}
# The opcodes for which `product` or `others` can return FLOPs.
COUNTED = frozenset({*_PRODUCTS, *_OTHERS, "custom-call"})


@functools.cache
def _pattern(key: str, value: str) -> re.Pattern[str]:
    return re.compile(rf",\s*+{key}\s*+=\s*+{value}")


def _written(instruction: Instruction, key: str, value: str) -> str | None:
    """Return the value of one attribute of this form, without parsing the other attributes."""
    match = _pattern(key, value).search(instruction.attributes_text)
    return match[1] if match else None


def listed(instruction: Instruction, key: str) -> list[int] | None:
    """Return the numbers of one attribute, such as lhs_batch_dims; None without it."""
    written = _written(instruction, key, _LIST)
    return None if written is None else _numbers(written)


def _first(shape: Shape | None) -> Shape | None:
    return shape.parts[0] if shape is not None and shape.parts else shape


def _elements(shape: Shape | None) -> int | None:
    return None if shape is None else shape.elements


def _numbers(written: str) -> list[int]:
    return [int(digits) for digits in _NUMBER.findall(written)]


def _countable(count: int | None) -> int | None:
    return count if count is not None and count <= MAX_COUNT else None
