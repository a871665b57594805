"""How much two arrays differ, and what rounding explains."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from inspector.learn.compare_results import differences, modules
from inspector.learn.compare_results.job import Executable, ResultValue
from inspector.tracing.mlir import walk

RANDOM = np.random.default_rng(0)


def test_the_difference_is_relative_to_the_norm() -> None:
    second = RANDOM.normal(size=(20, 30))
    first = second.copy()
    first[3, 4] += 0.5
    difference = differences.difference(first, second)
    expected = 0.5 / max(np.linalg.norm(first), np.linalg.norm(second))
    assert difference.relative == pytest.approx(expected)
    assert difference.index == (3, 4) and difference.factor is None
    assert differences.difference(3 * second, second).factor == pytest.approx(3)


def test_large_elements_do_not_overflow() -> None:
    second = np.array([1e300, 1e300])
    assert differences.difference(second * 2, second).relative == pytest.approx(0.5)


def test_nan_equals_nan_and_nothing_else() -> None:
    second = np.array([1.0, np.nan, np.inf])
    assert differences.difference(second.copy(), second).index is None
    assert differences.difference(np.array([1.0, -np.nan, np.inf]), second).index is None
    for first in ([1.0, 2.0, np.inf], [1.0, np.nan, -np.inf], [np.nan, np.nan, np.inf]):
        assert differences.difference(np.array(first), second).relative == math.inf


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.bool_, ml_dtypes.int4])
def test_integers_are_counted(dtype: type) -> None:
    second = np.array([0, 1, 1, 0]).astype(dtype)
    first = np.array([0, 1, 0, 0]).astype(dtype)
    difference = differences.difference(first, second)
    assert difference.relative == 0.25 and difference.index == (2,) and difference.values is not None
    assert differences.difference(second.copy(), second) == differences.EQUAL


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn])
def test_one_rounding_of_each_element_is_within_the_tolerance(dtype: type) -> None:
    kind = {"bfloat16": "bf16", "float16": "f16"}.get(np.dtype(dtype).name, "f8E4M3FN")
    exact = RANDOM.uniform(0.5, 2, 1000)
    difference = differences.difference(exact.astype(dtype).astype(float), exact)
    assert 0 < difference.relative < differences.tolerance([kind, "f32"], 1)


def test_a_sum_in_another_order_is_within_the_tolerance() -> None:
    for terms in (RANDOM.normal(size=2**20), RANDOM.uniform(size=2**20)):
        single = terms.astype("float32")
        forward = np.cumsum(single, dtype="float32")[-1:]  # one after the other
        parts = np.cumsum(single.reshape(8, -1), axis=1, dtype="float32")[:, -1]
        difference = differences.difference(parts.sum(dtype="float32")[None], forward)
        assert 0 < difference.relative < differences.tolerance(["f32"], 2**20)


def test_replicas() -> None:
    halves = (slice(0, 2),), (slice(2, 4),)
    parts = tuple(map(np.array, ([1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [3.0, 5.0])))
    value = ResultValue((4,), parts, halves * 2)
    assert value.whole().tolist() == [1, 2, 3, 4]
    unequal = value.unequal_replicas()
    assert unequal.devices == (1, 3) and unequal.index == (3,)
    assert unequal.values == ("4.0", "5.0") and unequal.groups == 1
    assert ResultValue((4,), (*parts[:3], parts[1]), halves * 2).unequal_replicas() is None


def with_rounded_sums(function: Any, *arguments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what a function returns, and what it returns with rounding errors in its sums."""
    with jax.enable_x64(True):
        lowered = jax.jit(function).lower(*arguments)
        bytecode = walk.of_module(lowered.compiler_ir("stablehlo"))
        settings = {
            "devices": [0], "tuple_args": False, "inputs_chosen": [False] * len(arguments),
            "outputs_chosen": [False], "partitions": [],
        }  # fmt: skip
        plain = Executable(modules.prepared(bytecode), settings)
        (value,), (other,) = plain(arguments), plain.with_rounded_sums(-1)(arguments)
    return value.whole(), other.whole()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x @ y,
        lambda x, y: jnp.einsum("abc,dcb->ad", x.reshape(9, 5, 5), y.reshape(9, 5, 5)),
        lambda x, y: jax.lax.reduce(x * y.T, x.dtype.type(0), jax.lax.add, (0,)),
        lambda x, y: jax.lax.fori_loop(0, 3, lambda _, total: total + (x * y.T).sum(), x.sum()),
    ],
)
def test_an_exact_sum_has_no_rounding_error(function: Any, dtype: str) -> None:
    """Sums of integers are exact in any order. Others change by a few roundings of their terms."""
    x, y = RANDOM.normal(size=(2, 9, 25)).astype(dtype)
    arguments = x, y.T
    value, other = with_rounded_sums(function, *arguments)
    rounding = differences.ROUNDING["f32" if dtype == "float32" else "f64"]
    assert value.dtype == other.dtype == dtype
    assert 0 < np.max(np.abs(value - other)) < 1e3 * rounding * np.abs(value).max()
    value, other = with_rounded_sums(function, *(np.round(9 * array) for array in arguments))
    assert np.any(value) and np.array_equal(value, other)
