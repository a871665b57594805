"""Report how the compiler or propagation shards values inside a model, without changing the program.

A model calls `watch` for a value. Without a listener that does nothing. With one it calls
`jax.debug.inspect_array_sharding`, which adds no instruction to the compiled program. While a program is
lowered for propagation, it marks the value in the lowered module.
"""

import contextlib
import contextvars
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import ad, batching, mlir

MARK = "InspectorValue"


@dataclass(frozen=True)
class Watched:
    """A value inside a program. `names` are those of its sharding constraint; None without one."""

    path: str
    shape: tuple[int, ...]
    dtype: jax.typing.DTypeLike
    names: tuple[Any, ...] | None
    sharding: jax.sharding.Sharding


_listener: contextvars.ContextVar[Callable[[Watched], None] | None] = contextvars.ContextVar(
    "listener", default=None
)
_marking: contextvars.ContextVar[bool] = contextvars.ContextVar("marking", default=False)


def watch(path: str, value: jax.Array, names: tuple[Any, ...] | None = None) -> None:
    """Report the sharding of `value` to the listener when the program is compiled.

    Values inside of the stages of a pipeline are not reported, as JAX cannot inside of `vmap`.
    """
    if "/stages/" in path:
        return
    if _marking.get():
        _mark.bind(value, text=json.dumps({"path": path, "names": names, "dtype": str(value.dtype)}))
    listener = _listener.get()
    if listener is None:
        return
    shape, dtype = tuple(value.shape), value.dtype
    jax.debug.inspect_array_sharding(
        value, callback=lambda sharding: listener(Watched(path, shape, dtype, names, sharding))
    )


@contextlib.contextmanager
def listening(listener: Callable[[Watched], None]) -> Iterator[None]:
    """Report the watched values of programs that are traced in this context."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextlib.contextmanager
def marking() -> Iterator[None]:
    """Mark the watched values of programs that are traced in this context.

    The lowered module then has a custom call `MARK` for each, with its path, names and dtype as JSON.
    """
    token = _marking.set(True)
    try:
        yield
    finally:
        _marking.reset(token)


@functools.cache
def _effects() -> frozenset[Any]:
    """Return the effect of `jax.debug.callback`, which loops and `jax.checkpoint` allow.

    JAX has no public name for it.
    """
    return frozenset(jax.make_jaxpr(lambda: jax.debug.callback(_nothing))().effects)


def _nothing() -> None:
    pass


_mark = Primitive("inspector_mark")
_mark.multiple_results = True


@_mark.def_effectful_abstract_eval
def _(_value: Any, **_text: Any) -> tuple[list[Any], set[Any]]:
    return [], set(_effects())  # an effect, so that the call is not removed as unused


def _batched(values: Any, _dims: Any, **text: Any) -> tuple[list[Any], list[Any]]:
    return _mark.bind(*values, **text), []


def _lowered(_context: Any, value: Any, *, text: str) -> list[Any]:
    mark_value(value, text)
    return []


def mark_value(value: Any, text: str) -> None:
    """Insert the custom call that marks a value of a module."""
    stablehlo.CustomCallOp([], [value], MARK, has_side_effect=True, backend_config=ir.StringAttr.get(text))


ad.primitive_jvps[_mark] = lambda values, _tangents, **text: (_mark.bind(*values, **text), [])
batching.primitive_batchers[_mark] = _batched
mlir.register_lowering(_mark, _lowered)
