"""Caches of facts from MLIR attributes.

An attribute keeps its context alive, with all types, locations and constants of every module that was parsed
in it: at least 1.2 MB, and all weights that a file has in its text. So the caches keep the attributes of one
context only, the one that was used last. A worker reads many modules, each in a separate context.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from jax.extend.mlir import ir

_Function = TypeVar("_Function", bound=Callable[..., Any])

_caches: list[Any] = []
_context: ir.Context | None = None


def cached_by_attribute(most: int) -> Callable[[_Function], _Function]:
    """Keep the last `most` results of a function whose first argument is an attribute."""

    def decorate(function: _Function) -> _Function:
        cache = functools.lru_cache(most)(function)
        _caches.append(cache)

        @functools.wraps(function)
        def cached(attribute: ir.Attribute, *others: Any) -> Any:
            if attribute.context is not _context:
                _begin(attribute.context)
            return cache(attribute, *others)

        return cast("_Function", cached)

    return decorate


def _begin(context: ir.Context) -> None:
    global _context
    for cache in _caches:
        cache.cache_clear()
    _context = context
