"""Measure the difference of two arrays, and the part that rounding explains.

Sums in another order round differently, so floating-point results are compared with a tolerance. The measure
is the norm of the difference, relative to the larger norm of the two arrays: elements that nearly cancel are
small and have a large relative error, but hardly change a norm. Integers, booleans and keys are exact.

The tolerance has three parts, and the largest counts:

* 16 roundings of the coarsest floating-point type of the program, at most 0.25.
* The rounding of the longest sum. The error of a sum of n terms grows as the square root of n.
* What the program itself does with rounding errors: the largest change of the result on one device if
  the arguments change by one rounding error, in several random directions, and its sums by those of their
  terms. Sums of integers have none. A difference of two sums can be much smaller than their terms. Some
  results are only such errors, for example the gradient of a bias before a softmax, whose sign Adam turns
  into a whole step.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from inspector.records.same_results import MEANINGFUL

# Half the distance from 1 to the next number, by floating-point type as MLIR names it.
ROUNDING = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
ROUNDING_OF_8_BITS = 2.0**-3  # also of smaller types
# Roundings of one result that are allowed: operations that XLA fuses differently round differently.
_ROUNDINGS = 16.0
# Roundings of a sum of n terms, times the square root of n. JAX sums 16-bit types in float32.
_SUM_FACTOR = 2.0
# A difference of this multiple of the change by rounded arguments is still explained by rounding.
_SENSITIVITY_FACTOR = 30.0
# A factor closer to 1 counts as none, and a multiple may differ by this much.
_LEAST_FACTOR = 1e-3


@dataclass(frozen=True)
class Difference:
    """The difference of two arrays.

    Attributes:
      relative: as in the module's text; `inf` if elements are NaN or infinite on one side only.
      index: of the element that differs most, None if all are equal.
      values: this element in both arrays, as text.
      factor: the first array is this multiple of the second one, None if it is not one.
      scale: the larger norm of the two arrays, which `relative` is relative to. Of other types, 1.
    """

    relative: float
    index: tuple[int, ...] | None
    values: tuple[str, str] | None
    factor: float | None
    scale: float = 1.0


EQUAL = Difference(0.0, None, None, None)


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
    """Return the difference of two arrays of the same shape and type.

    >>> difference(np.array([3.0, 8.0]), np.array([3.0, 4.0])).index
    (1,)
    """
    if first.size == 0 or first.tobytes() == second.tobytes():
        return EQUAL
    dtype = first.dtype
    if not jnp.issubdtype(dtype, jnp.inexact):
        unequal = first != second
        count = int(np.count_nonzero(unequal))
        return _at(first, second, unequal, count / first.size, None) if count else EQUAL
    wide = np.complex128 if jnp.issubdtype(dtype, jnp.complexfloating) else np.float64
    ours, theirs = first.astype(wide), second.astype(wide)
    with np.errstate(all="ignore"):
        both = np.isfinite(ours) & np.isfinite(theirs)
        alike = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        distance = np.where(both, np.abs(ours - theirs), np.where(alike, 0.0, np.inf))
        if not distance.any():
            return EQUAL
        if np.isinf(distance).any():
            return _at(first, second, distance, math.inf, None)
        ours, theirs = np.where(both, ours, 0), np.where(both, theirs, 0)
        scale = max(_norm(ours), _norm(theirs))
        relative = _norm(distance) / scale
        factor = _factor(ours, theirs)
    return replace(_at(first, second, distance, relative, factor), scale=scale)


def tolerance(kinds: Sequence[str], terms: int) -> float:
    """Return the difference of norms that rounding explains.

    Args:
      kinds: the floating-point types of the program, as MLIR names them.
      terms: of its longest sum.

    >>> tolerance(["f32", "bf16"], 1)
    0.0625
    """
    if not kinds:
        return 0.0
    sums = ROUNDING["f64" if set(kinds) == {"f64"} else "f32"]
    constant = max(_ROUNDINGS * _rounding(kinds), _SUM_FACTOR * sums * math.sqrt(terms))
    return min(constant, MEANINGFUL)


def with_sensitivity(constant: float, changes: Iterable[Difference], scale: float) -> float:
    """Return the tolerance for a result with `changes` by rounding, `inf` if one of them is not finite.

    scale: the larger norm of the two arrays that are compared.
    """
    explained = max(change.relative * change.scale for change in changes) / scale
    return max(constant, _SENSITIVITY_FACTOR * explained)


def sum_error(kind: str, terms: int) -> tuple[float, float]:
    """Return the error of a sum of this type, which `with_sensitivity` multiplies, relative to its terms.

    Sums of integers below the second number are exact.
    """
    rounding = min(ROUNDING["f32"], ROUNDING.get(kind, math.inf))
    return rounding * max(2.0, math.sqrt(terms) / _SENSITIVITY_FACTOR), 1 / rounding


def rounded(values: Sequence[Any], kinds: Sequence[str], seed: int) -> list[Any]:
    """Return the arrays with every floating-point element changed by one rounding error of the program."""
    error = _rounding(kinds)
    generator = np.random.default_rng(seed)
    return [_rounded(value, error, generator) for value in values]


def _rounding(kinds: Sequence[str]) -> float:
    """Return the largest rounding error of these types."""
    return max((ROUNDING.get(kind, ROUNDING_OF_8_BITS) for kind in kinds), default=0.0)


def _rounded(value: np.ndarray, error: float, generator: np.random.Generator) -> np.ndarray:
    if not jnp.issubdtype(value.dtype, jnp.floating):
        return value
    signs = generator.choice([-error, error], value.shape)
    return (value.astype(np.float64) * (1 + signs)).astype(value.dtype)


def _norm(value: np.ndarray) -> float:
    largest = float(np.max(np.abs(value)))
    return largest * float(np.linalg.norm((value / largest).ravel())) if largest else 0.0


def _factor(ours: np.ndarray, theirs: np.ndarray) -> float | None:
    """Return the factor between two arrays, None if there is none or it is complex."""
    scale = float(np.vdot(theirs, theirs).real)
    if not scale or not math.isfinite(scale):
        return None
    factor = float(np.vdot(theirs, ours).real) / scale
    close = _norm(ours - factor * theirs) <= _LEAST_FACTOR * _norm(ours)
    return factor if close and abs(factor - 1) > _LEAST_FACTOR else None


def _at(
    first: np.ndarray, second: np.ndarray, distance: np.ndarray, relative: float, factor: float | None
) -> Difference:
    index = tuple(map(int, np.unravel_index(int(np.argmax(distance)), first.shape)))
    return Difference(relative, index, (str(first[index]), str(second[index])), factor)
