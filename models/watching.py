"""Report how the compiler shards values inside a model, without changing the program.

A model calls `watch` for a value. Without a listener that does nothing. With one it calls
`jax.debug.inspect_array_sharding`, which adds no instruction to the compiled program.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax


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


def watch(path: str, value: jax.Array, names: tuple[Any, ...] | None = None) -> None:
    """Report the sharding of `value` to the listener when the program is compiled."""
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
