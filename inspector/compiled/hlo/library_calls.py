"""FLOPs of calls of libraries other than matrix products: solvers, searches and sorts.

The formulas of direct solvers are the operation counts of LAPACK (Working Note 41, appendix C). Those of
eigenvalues and singular values, which iterate, are of Golub and Van Loan, Matrix Computations, 4th edition,
sections 8.3.3, 7.5.6 and 8.6.3. A comparison counts 1.
"""

import math
import re
from collections.abc import Callable, Sequence

from inspector.compiled.hlo.module import Instruction
from inspector.compiled.hlo.shapes import Shape


def _lu(rows: int, columns: int) -> float:
    least, most = sorted((rows, columns))
    return most * least**2 - least**3 / 3


def _qr(rows: int, columns: int) -> float:
    return 2 * _lu(rows, columns)


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
        (r"Qr\w*|\w+_[sdcz]?geqrf\w*", _qr),
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
    """Return whether a call factorizes or solves.

    Its steps depend on each other, and some iterate, so it runs at an unknown share of the peak.
    """
    target = instruction.target
    return any(names.fullmatch(target) for names in (_TRIANGULAR, *(names for names, _ in _SOLVERS)))


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
