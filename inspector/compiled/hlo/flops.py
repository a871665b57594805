"""FLOPs of one execution of an instruction, as defined by XLA's HloCostAnalysis.

An elementwise operation counts 1 per element of its result, of any type. A transcendental operation (exp,
tanh, sqrt, power …) counts 0, because XLA counts those separately. A multiply-add counts 2.
Source: xla/service/hlo_cost_analysis.cc of OpenXLA.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

from inspector.compiled.hlo import text
from inspector.compiled.hlo.module import Computation, Instruction
from inspector.compiled.hlo.operands import operand_shapes
from inspector.compiled.hlo.shapes import MAX_COUNT, Shape, elements_of
from inspector.core.statistics import sum_known

MULTIPLY_ADD = 2  # FLOPs

ELEMENTWISE = frozenset({
    "abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "complex", "convert",
    "count-leading-zeros", "divide", "floor", "imag", "is-finite", "maximum", "minimum", "mulhi", "multiply",
    "negate", "not", "or", "popcnt", "population-count", "real", "reduce-precision", "remainder",
    "round-nearest-afz", "round-nearest-even", "select", "shift-left", "shift-right-arithmetic",
    "shift-right-logical", "sign", "stochastic-convert", "subtract", "xor",
})  # fmt: skip

# Computation name → FLOPs of one application, or None if unknown.
Applied = Callable[[str], int | None]

_NAMED = {
    key: re.compile(rf",\s*+{key}\s*+=\s*+%?+({text.NAME})")
    for key in ("to_apply", "select", "scatter")
}
_CONTRACTED = re.compile(r",\s*+lhs_contracting_dims\s*+=\s*+\{([\d,\s]*+)\}")
_RAGGED = re.compile(r",\s*+lhs_ragged_dims\s*+=\s*+\{([\d,\s]*+)\}")
# In the backend_config of a library call, as JSON or as a string of JSON.
_CONTRACTED_BY_LIBRARY = re.compile(
    r'\\?"lhs_contracting_dimensions\\?"\s*+:\s*+\[([\d,\s"\\]*+)\]'
)
_TRANSPOSED = re.compile(r'\\?"transpose_a\\?"\s*+:\s*+true')
_NUMBER = re.compile(r"\d{1,18}")
_SIGNED = re.compile(r"-?\d{1,18}\Z")
_TARGET = re.compile(r',\s*+custom_call_target\s*+=\s*+"([^"\\]*+)"')
_GROUPS = {
    key: re.compile(rf",\s*+{key}\s*+=\s*+(\d{{1,18}})\b")
    for key in ("feature_group_count", "batch_group_count")
}
# Limit of the positions that are tried in each dimension of a strided or dilated convolution.
_MAX_TRIED = 4096


class Product(NamedTuple):
    """FLOPs of a matrix product or convolution, and the wider type of its two operands."""

    flops: int | None
    dtype: str | None


def target(instruction: Instruction) -> str:
    """Return the target of a custom call; "" if it has none."""
    match = _TARGET.search(instruction.attributes_text)
    return match[1] if match else ""


def product(computation: Computation, instruction: Instruction) -> Product | None:
    """Return the FLOPs of a dot, a convolution, or such a call of cuBLAS, cuDNN or oneDNN.

    Return None for any other instruction.
    """
    opcode = instruction.opcode
    count: Callable[..., int | None] | None = _PRODUCTS.get(opcode)
    if opcode == "custom-call":
        called = target(instruction)
        count = next((each for name, each in _LIBRARY if called.startswith(name)), None)
    if count is None:
        return None
    operands = operand_shapes(computation, instruction)
    if len(operands) < 2 or operands[0] is None or operands[1] is None:
        return Product(None, None)
    result = instruction.shape
    if opcode == "custom-call" and result is not None and result.parts:
        result = result.parts[0]  # the rest is workspace
    if result is None:
        return Product(None, None)
    flops = count(instruction, operands[0], operands[1], result)
    return Product(_countable(flops), _wider(operands[0], operands[1]))


def others(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    """Return the FLOPs of an instruction that is neither elementwise nor a product; 0 for most.

    They include the computation that it applies to elements, but not the computations that it calls.
    """
    count = _OTHERS.get(instruction.opcode)
    return 0 if count is None else _countable(count(computation, instruction, applied))


def _dot(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    match = _CONTRACTED.search(instruction.attributes_text)
    return _contraction(lhs, result, _numbers(match[1]) if match else [])


def _ragged_dot(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    """Each row is multiplied with the matrix of its group only."""
    whole = _dot(instruction, lhs, rhs, result)
    contracted = _CONTRACTED.search(instruction.attributes_text)
    ragged = _RAGGED.search(instruction.attributes_text)
    if whole is None or contracted is None or ragged is None:
        return None
    if not set(_numbers(ragged[1])) & set(_numbers(contracted[1])):
        return whole
    # The contracted dimension is ragged: the groups split it, and are the first dimension of the result.
    groups = result.dimensions[0] if result.dimensions else None
    return whole // groups if groups else None if groups is None else 0


def _library_dot(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    match = _CONTRACTED_BY_LIBRARY.search(instruction.attributes_text)
    return _contraction(lhs, result, _numbers(match[1])) if match else None


def _onednn_dot(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    rank = len(lhs.dimensions)
    if _TRANSPOSED.search(instruction.attributes_text):
        return _contraction(lhs, result, [rank - 2])
    return _contraction(lhs, result, [rank - 1])


def _contraction(lhs: Shape, result: Shape, contracted: list[int]) -> int | None:
    if result.elements is None or lhs.elements is None:
        return None
    if not all(0 <= number < len(lhs.dimensions) for number in contracted):
        return None
    summed = math.prod(lhs.dimensions[number] or 0 for number in set(contracted))
    return MULTIPLY_ADD * result.elements * summed


def _convolution(instruction: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    """Count the multiply-adds without those of padding and of dilation gaps."""
    attributes = instruction.attributes
    labels: list[str] = re.split(r"_|->", attributes.get("dim_labels", ""))
    arrays = (lhs, rhs, result)
    if len(labels) != 3 or any(array.elements is None for array in arrays):
        return None
    if any(
        len(label) != len(array.dimensions) for label, array in zip(labels, arrays, strict=True)
    ):
        return None
    of_lhs, of_rhs, of_result = (
        {name: size or 0 for name, size in zip(label, array.dimensions, strict=True)}
        for label, array in zip(labels, arrays, strict=True)
    )
    spatial = sorted(label for label in of_lhs if label.isdecimal())
    window = _window(attributes.get("window", ""), len(spatial))
    if window is None or not {"b", "f"} <= of_lhs.keys() or "f" not in of_result:
        return None
    groups = [_GROUPS[key].search(instruction.attributes_text) for key in _GROUPS]
    features, batches = (int(match[1]) if match else 1 for match in groups)
    if not features or not batches:
        return None
    count = of_lhs["f"] // features * of_result["f"] * (of_lhs["b"] // batches)
    for label, dimension in zip(spatial, window, strict=True):
        if label not in of_rhs or label not in of_result:
            return None
        each = _positions(of_lhs[label], of_rhs[label], of_result[label], dimension)
        if each is None:
            return None
        count *= each
    return MULTIPLY_ADD * count


def _gradient_of_input(i: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    return _convolution(i, result, rhs, lhs)


def _gradient_of_filter(i: Instruction, lhs: Shape, rhs: Shape, result: Shape) -> int | None:
    return _convolution(i, lhs, result, rhs)


_PRODUCTS = {
    "dot": _dot,
    "scaled-dot": _dot,
    "ragged-dot": _ragged_dot,
    "convolution": _convolution,
}
# By prefix of the target: gemm, lt$matmul and lt$matmul$f8, and convolutions with fused epilogues.
_LIBRARY = (
    ("__cublas$", _library_dot),
    ("__onednn$matmul", _onednn_dot),
    ("__cudnn$convBackwardInput", _gradient_of_input),
    ("__cudnn$convBackwardFilter", _gradient_of_filter),
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


def _window(written: str, rank: int) -> list[_Dimension] | None:
    """Return the `rank` dimensions of `{size=3x3 stride=2x2 pad=1_1x0_0 …}`; None if they do not match."""
    fields = text.fields(written)
    columns = []
    for key, default in (
        ("size", "1"), ("stride", "1"), ("pad", "0_0"), ("lhs_dilate", "1"), ("rhs_dilate", "1"),
    ):  # fmt: skip
        column = fields[key].split("x") if key in fields else [default] * rank
        if len(column) != rank:
            return None
        columns.append(column)
    dimensions = []
    for size, stride, pad, base, window in zip(*columns, strict=True):
        numbers = [size, stride, *pad.split("_"), base, window]
        if len(numbers) != 6 or not all(map(_SIGNED.match, numbers)):
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
    every = along.base // common
    inverse = pow(step // common, -1, every) if every > 1 else 0
    total = 0
    for place in range(tried):
        short = along.low - place * tried_step  # of the first element of the input
        if short % common:
            continue
        first = short // common * inverse % every
        least = max(-(-short // step), 0)
        most = min((short + (inputs - 1) * along.base) // step, counted - 1)
        least += (first - least) % every
        total += max((most - least) // every + 1, 0)
    return total


def _below(kernel: int, outputs: int, most: int) -> int:
    """Return the number of pairs k < kernel, o < outputs with k + o at most `most`."""

    def triangle(side: int) -> int:
        return side * (side + 1) // 2 if side > 0 else 0

    side = most + 1
    return (
        triangle(side)
        - triangle(side - kernel)
        - triangle(side - outputs)
        + triangle(side - kernel - outputs)
    )


def _wider(lhs: Shape, rhs: Shape) -> str:
    return rhs.dtype if (rhs.element_bits or 0) > (lhs.element_bits or 0) else lhs.dtype


def _reduce(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    operands, result = operand_shapes(computation, instruction), _first(instruction.shape)
    inputs = _elements(operands[0] if operands else None)
    outputs = _elements(result)
    if inputs is None or outputs is None:
        return None
    return _applications(instruction, "to_apply", max(inputs - outputs, 0), applied)


def _reduce_window(
    computation: Computation, instruction: Instruction, applied: Applied
) -> int | None:
    result = _first(instruction.shape)
    outputs = _elements(result)
    if result is None or outputs is None:
        return None
    window = _window(instruction.attributes.get("window", ""), len(result.dimensions))
    if window is None:
        return None
    times = (math.prod(dimension.size for dimension in window) - 1) * outputs
    # XLA counts a window that covers the whole dimension as a reduction and a broadcast.
    sides = [
        (dimension, length)
        for dimension, length in zip(window, result.dimensions, strict=True)
        if dimension.size != 1
    ]
    padded = sum(dimension.low != 0 or dimension.high != 0 for dimension in window)
    if len(sides) == 1 and padded == 1 and instruction.shape is result:
        ((dimension, length),) = sides
        around = dimension.low == dimension.high != 0 and dimension.size == 2 * dimension.low + 1
        if length and around and dimension.low == length - 1:
            times = outputs // length + length - 1
    return _applications(instruction, "to_apply", times, applied)


def _scatter(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    operands = operand_shapes(computation, instruction)
    first_update = len(operands) // 2 + 1
    updates = _elements(operands[first_update]) if first_update < len(operands) else None
    return _applications(instruction, "to_apply", updates, applied)


def _select_and_scatter(
    computation: Computation, instruction: Instruction, applied: Applied
) -> int | None:
    operands = operand_shapes(computation, instruction)
    source = operands[1] if len(operands) > 1 else None
    count = _elements(source)
    if source is None or count is None:
        return None
    window = _window(instruction.attributes.get("window", ""), len(source.dimensions))
    if window is None:
        return None
    places = math.prod(dimension.size for dimension in window)
    selected = _applications(instruction, "select", count * (places - 1), applied)
    scattered = _applications(instruction, "scatter", count, applied)
    return None if selected is None or scattered is None else selected + scattered


def _map(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    return _applications(instruction, "to_apply", _elements(instruction.shape), applied)


def _scan(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    """Count one application per position along the dimension. XLA counts one in all."""
    operands = operand_shapes(computation, instruction)
    along = _numbers(instruction.attributes.get("dimensions", ""))
    lengths = operands[0].dimensions if operands and operands[0] is not None else ()
    known = len(along) == 1 and along[0] < len(lengths)
    return _applications(instruction, "to_apply", lengths[along[0]] if known else None, applied)


def _all_reduce(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    """Count 1 per element, as XLA does for any number of devices."""
    shape = instruction.shape
    if shape is not None and shape.parts is not None:
        return sum_known(part.elements for part in shape.parts)
    return elements_of(instruction.shape_text)


def _sort(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    count = _first_operand(computation, instruction)
    return None if count is None else count * (max(count, 1) - 1).bit_length()


def _fft(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    count = _first_operand(computation, instruction)
    lengths = _numbers(instruction.attributes.get("fft_length", ""))
    if count is None or len(lengths) > 3 or 0 in lengths:
        return None
    # One complex multiplication, which is four multiply-adds, per factor of 2.
    factors = math.prod(length.bit_length() - 1 for length in lengths)
    return MULTIPLY_ADD * 4 * factors * count


def _triangular_solve(
    computation: Computation, instruction: Instruction, applied: Applied
) -> int | None:
    operands = operand_shapes(computation, instruction)
    if len(operands) != 2 or operands[0] is None or not operands[0].dimensions:
        return None
    sides, side = _elements(operands[1]), operands[0].dimensions[-1]
    return None if sides is None or side is None else MULTIPLY_ADD * side * sides


def _cholesky(computation: Computation, instruction: Instruction, applied: Applied) -> int | None:
    operands = operand_shapes(computation, instruction)
    matrix = operands[0] if operands else None
    if matrix is None or matrix.elements is None or not matrix.dimensions:
        return None
    return (matrix.dimensions[-1] or 0) * matrix.elements // 3


_OTHERS = {
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "map": _map,
    "scan": _scan,
    "all-reduce": _all_reduce,
    "sort": _sort,
    "fft": _fft,
    "triangular-solve": _triangular_solve,
    "cholesky": _cholesky,
}
# The opcodes for which `product` or `others` can return FLOPs.
COUNTED = frozenset({*_PRODUCTS, *_OTHERS, "custom-call"})


def _applications(
    instruction: Instruction, key: str, times: int | None, applied: Applied
) -> int | None:
    if not times:
        return times
    named = _NAMED[key].search(instruction.attributes_text)
    each = applied(named[1]) if named else None
    return None if each is None else times * each


def _first(shape: Shape | None) -> Shape | None:
    return shape.parts[0] if shape is not None and shape.parts else shape


def _first_operand(computation: Computation, instruction: Instruction) -> int | None:
    operands = operand_shapes(computation, instruction)
    return _elements(operands[0]) if operands else None


def _elements(shape: Shape | None) -> int | None:
    return None if shape is None else shape.elements


def _numbers(written: str) -> list[int]:
    return [int(digits) for digits in _NUMBER.findall(written)]


def _countable(count: int | None) -> int | None:
    return count if count is not None and count <= MAX_COUNT else None
