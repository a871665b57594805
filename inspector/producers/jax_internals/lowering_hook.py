"""Replace the function in which JAX lowers a jitted function, while a context is active.

Whatever wraps `jax.jit` ends in this function. In a program that is recorded, `compile_hook` replaces it.

Public replacement: none. Tried on JAX 0.10.2 and 0.12.0.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from jax._src import pjit


@contextlib.contextmanager
def replaced(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Call what `make` returns for the original function, `lower(arguments, jaxpr=…, **parameters)`."""
    original = pjit._resolve_and_lower
    pjit._resolve_and_lower = make(original)
    try:
        yield
    finally:
        pjit._resolve_and_lower = original


def runs_now(caller: FrameType) -> bool:
    """Return whether JAX lowers a function to run it now, and not ahead of time.

    Args:
      caller: the frame that calls the replaced function.
    """
    return caller.f_code is pjit._pjit_call_impl_python.__code__


def use_debug_info(traced: Any, of: Any) -> None:
    """Give a traced function the names and the source of another one."""
    getattr(traced, "jaxpr", traced)._debug_info = getattr(of, "jaxpr", of).debug_info
