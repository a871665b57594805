"""Let somebody see how the compiler shards a value inside a model, without changing the program.

`watch` stands in a model where a value is worth seeing. It does nothing until somebody listens; then it
asks `jax.debug.inspect_array_sharding`, which leaves no instruction in the compiled program.
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
    """A value inside a program. `names` are those of its constraint, None where it has none."""

    path: str
    shape: tuple[int, ...]
    dtype: jax.typing.DTypeLike
    names: tuple[Any, ...] | None
    sharding: jax.sharding.Sharding


_listener: contextvars.ContextVar[Callable[[Watched], None] | None] = contextvars.ContextVar(
    "listener", default=None
)


def watch(path: str, value: jax.Array, names: tuple[Any, ...] | None = None) -> None:
    """Tell whoever listens how the compiler shards `value`, once the program is compiled."""
    listener = _listener.get()
    if listener is None:
        return
    shape, dtype = tuple(value.shape), value.dtype
    jax.debug.inspect_array_sharding(
        value, callback=lambda sharding: listener(Watched(path, shape, dtype, names, sharding))
    )


@contextlib.contextmanager
def listening(listener: Callable[[Watched], None]) -> Iterator[None]:
    """While it is open, programs that are traced report what they watch when they are compiled."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
