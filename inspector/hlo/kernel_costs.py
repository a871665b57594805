"""The cost of a custom kernel, as its author states it, its name for users, and FLOPs of library calls.

Pallas writes the `cost_estimate` of a `pallas_call` into the custom call for a TPU, and XLA's own cost
analysis counts it. A kernel without an estimate has known bytes (its operands and results), but no known
FLOPs.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from inspector.hlo.module import Instruction
from inspector.hlo.shapes import MAX_COUNT, Shape

# FLOPs of calls of libraries other than matrix products: solvers, searches and sorts.
#
# The formulas of direct solvers are the operation counts of LAPACK (Working Note 41, appendix C). Those of
# eigenvalues and singular values, which iterate, are of Golub and Van Loan, Matrix Computations, 4th edition,
# sections 8.3.3, 7.5.6 and 8.6.3. A comparison counts 1.


def _lu(rows: int, columns: int) -> float:
    least, most = sorted((rows, columns))
    return most * least**2 - least**3 / 3


def _q_of_qr(rows: int, columns: int) -> float:
    """Return the FLOPs of `columns` columns of Q from as many reflections."""
    return 2 * rows * columns**2 - 2 * columns**3 / 3


# FLOPs of one matrix by rows and columns of the first operand. The targets are those of the compilers for
# TPUs and GPUs, and of the libraries that JAX calls: cuSOLVER, hipSOLVER, cuBLAS and LAPACK.
_SOLVERS: tuple[tuple[re.Pattern[str], Callable[[int, int], float]], ...] = tuple(
    (re.compile(names), flops)
    for names, flops in (
        (r"Cholesky|__cusolver\$cholesky|\w+_[sdcz]?potrf\w*", lambda rows, _: rows**3 / 3),
        (r"InvertDiagBlocks\w+", lambda rows, _: rows**3 / 3),
        (r"LuDecomposition\w*|\w+_[sdcz]?getrf\w*", _lu),
        (r"Qr\w*|\w+_[sdcz]?geqrf\w*", lambda rows, columns: 2 * _lu(rows, columns)),
        # The triangular factor of blocked reflections, from their inner products.
        (r"CompactWyHelper", lambda rows, _: rows**3 / 3),
        (r"ProductOfElementaryHouseholderReflectors|\w+_[sdcz]?(?:or|un)gqr\w*", _q_of_qr),
        (r"\w+_[sdcz]?(?:sy|he)trd\w*", lambda rows, _: 4 * rows**3 / 3),
        (r"Eigh\w*|\w+_[sdcz]?(?:sy|he)evd\w*", lambda rows, _: 9 * rows**3),
        (r"\w+_[sdcz]?geev\w*", lambda rows, _: 25 * rows**3),
        (r"\w+_[sdcz]?gesv?dd?j?\w*", lambda rows, columns: 4 * rows**2 * columns + 22 * columns**3),
    )
)
_TRIANGULAR = re.compile(r"__cublas\$triangularSolve|\w+_[sdcz]?trsm\w*")
_SOLVING = frozenset({"cholesky", "triangular-solve"})  # opcodes
_SEARCHES = re.compile(r"TopK|__gpu\$TopK|PartialReduce|ApproxTopK")
_SORTS = re.compile(r"__cub\$DeviceRadixSort\w*")
# Threefry-2x32 of 20 rounds: per pair of words an addition, a rotation (3) and an exclusive or for each
# round, and 3 additions for each of 5 injections of the key. Source: Salmon et al. 2011, figure 2.
_THREEFRY, _THREEFRY_PAIR = re.compile(r"\w*threefry2x32\w*"), 20 * 5 + 5 * 3


# Sizes, positions and flags. Matrix units multiply narrower integers alone.
_INDICES = frozenset({"s32", "u32", "pred"})


def _plans_work(instruction: Instruction, operands: Sequence[Shape | None]) -> bool:
    """Return whether a kernel only computes positions, such as the groups of XLA's ragged-dot for TPUs."""
    result = instruction.shape
    results = (result,) if result is None or result.parts is None else result.parts
    return all(array is not None and array.dtype in _INDICES for array in (*operands, *results))


def searches(instruction: Instruction) -> bool:
    """Return whether an instruction orders its operand, or looks for its largest elements."""
    return instruction.opcode in ("sort", "topk") or bool(_SEARCHES.fullmatch(instruction.target))


def is_solver(instruction: Instruction) -> bool:
    """Return whether an operation factorizes or solves.

    Its steps depend on each other, and some iterate, so it runs at an unknown share of the peak.
    """
    target = instruction.target
    solvers = (_TRIANGULAR, *(names for names, _ in _SOLVERS))
    return instruction.opcode in _SOLVING or any(names.fullmatch(target) for names in solvers)


def flops(instruction: Instruction, operands: Sequence[Shape | None]) -> int | None:
    """Return the FLOPs of a call; None if it is of another kind, or its shapes are unknown."""
    target, first = instruction.target, operands[0] if operands else None
    if target == "tpu_custom_call" and _plans_work(instruction, operands):
        return 0
    if _SORTS.fullmatch(target):
        return 0  # a radix sort compares nothing
    if first is None or first.elements is None:
        return None
    if _SEARCHES.fullmatch(target):
        # Each element is compared with the smallest one that is kept so far.
        return first.elements
    if _THREEFRY.fullmatch(target):
        words = operands[-1]
        return None if words is None or words.elements is None else words.elements * _THREEFRY_PAIR
    if len(first.dimensions) < 2:
        return None
    if _TRIANGULAR.fullmatch(target):
        right = operands[1] if len(operands) > 1 else None
        sides = None if right is None else right.elements
        return None if sides is None else (first.dimensions[-1] or 0) * sides
    for names, count in _SOLVERS:
        if names.fullmatch(target):
            *batch, rows, columns = (dimension or 0 for dimension in first.dimensions)
            return round(math.prod(batch) * count(rows, columns))
    return None


# As JSON, or as a string of JSON.
ESTIMATE = re.compile(r'\\?"cost_estimate\\?"\s*+:\s*+\{([^{}]{0,400})\}')
_FIELD = re.compile(r'"(flops|bytes_accessed)\\?"\s*+:\s*+\\?"?(\d{1,18})\b')
# Targets of all kernels of a compiler for kernels: that of Pallas for TPUs, Triton, and Pallas for GPUs.
_COMPILERS = re.compile(r"tpu_custom_call|__gpu\$xla\.gpu\.triton|triton_kernel_call|mosaic_gpu\w*")
_NAMED = re.compile(r'\bname\s*+=\s*+"([\w.$-]{1,200})"')


_FLOAT = re.compile(r"b?f\d")
_FUNCTION = re.compile(r"jit\((.+)\)")


class KernelCost(NamedTuple):
    """FLOPs and bytes of one execution, as the kernel states them. None if it does not."""

    flops: int | None
    bytes: int | None


def stated(instruction: Instruction) -> KernelCost | None:
    """Return the cost that a custom kernel states; None for other instructions, and if it states nothing."""
    if instruction.opcode != "custom-call":
        return None
    estimate = ESTIMATE.search(instruction.attributes_text)
    if estimate is None:
        return None
    fields = {name: int(count) for name, count in _FIELD.findall(estimate[1])}
    flops, moved = fields.get("flops"), fields.get("bytes_accessed")
    # An estimate of 0 bytes is one of FLOPs alone.
    return KernelCost(
        flops if flops is None or flops <= MAX_COUNT else None,
        moved if moved and moved <= MAX_COUNT else None,
    )


def stated_bytes(instruction: Instruction) -> int | None:
    """Return the bytes that a custom kernel states to read and write; None if it does not."""
    cost = stated(instruction)
    return None if cost is None else cost.bytes


def name_of(instruction: Instruction) -> str:
    """Return the name of the kernel that a custom call runs: its own, or else the target of the call."""
    target = instruction.target
    if not _COMPILERS.fullmatch(target):
        if instruction.opcode != "custom-call":
            return instruction.opcode
        return target or "a custom call without a target"
    written = _NAMED.search(instruction.attributes_text)
    path = instruction.metadata.get("op_name", "").split("/")
    if written is not None and target != "tpu_custom_call":
        return written[1]
    own = path[-2] if len(path) > 1 and path[-1].startswith("pallas_call") else path[-1]
    function = _FUNCTION.fullmatch(own)
    return (function[1] if function else own) or target


def operand_type(operands: list[Shape | None]) -> str | None:
    """Return the type of a kernel's products: that of its largest operand of floating-point numbers.

    Sizes of groups, positions and masks are integers, and weights can be quantized to integers, so these
    count only if there is nothing else. Return None without operands.
    """
    arrays = [operand for operand in operands if operand is not None and operand.elements]
    floats = [array for array in arrays if _FLOAT.match(array.dtype)]
    largest = max(floats or arrays, key=lambda array: array.elements or 0, default=None)
    return None if largest is None else largest.dtype
