"""The error that ended a program: array, dimension, size, mesh axis and line, as in the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.recording.last_error import last_error
from inspector.records import typed_json
from inspector.records.program_run import RunError

pytestmark = [pytest.mark.close_to_jax]
HERE = Path(__file__).name


def explicit() -> Any:
    return jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)


def puts(mesh: Any) -> None:
    kernel = jax.device_put(jnp.ones((8, 6)), NamedSharding(mesh, P(None, "model")))
    del kernel


def reshapes(mesh: Any) -> None:
    hidden = jax.device_put(jnp.ones((8, 16)), NamedSharding(mesh, P("data", "model")))
    jax.jit(lambda hidden: jnp.reshape(hidden, (2, 4, 2, 8)))(hidden)


def passes(mesh: Any) -> None:
    jax.jit(lambda rows: rows * 2, in_shardings=NamedSharding(mesh, P("model")))(jnp.ones((6, 2)))


def caught(function: Callable[[Any], None]) -> RunError:
    with pytest.raises(Exception) as error:
        function(explicit())
    return typed_json.decode(RunError, last_error(error.value))


def line(function: Callable[[Any], None], of: int) -> str:
    return f"{HERE}:{function.__code__.co_firstlineno + of}"


def test_an_array_that_an_axis_does_not_divide() -> None:
    error = caught(puts)
    assert error.line == line(puts, 1) and error.uneven is not None
    uneven = error.uneven
    assert (uneven.array, uneven.dimension, uneven.size, uneven.parts) == ("kernel", 1, 6, 4)
    assert uneven.axes == ("model",)
    assert "kernel" in error.sentence and "model" in error.sentence and error.line in error.sentence


def test_an_argument_that_an_axis_does_not_divide() -> None:
    error = caught(passes)
    assert error.line == line(passes, 1) and error.uneven is not None
    assert (error.uneven.dimension, error.uneven.size, error.uneven.parts) == (0, 6, 4)
    assert error.uneven.axes == ("model",)


def test_an_operation_that_explicit_axes_do_not_allow() -> None:
    error = caught(reshapes)
    assert (error.kind, error.line) == ("ShardingTypeError", line(reshapes, 2))
    assert error.arrays == {"hidden": "float32[8@data,16@model]"} and error.uneven is None


def test_another_error_has_its_line() -> None:
    def fails(mesh: Any) -> None:
        raise ValueError("no\nsuch file")

    error = caught(fails)
    assert (error.kind, error.message, error.line) == ("ValueError", "no such file", line(fails, 1))
