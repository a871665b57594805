"""The names that a program has for its arrays: attributes of its objects, and variables of Keras.

No library is imported here, and no code of a class runs that is not needed to flatten a pytree.
"""

import contextlib
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from inspector.core.snapshot import Group
from inspector.core.source_files import is_library
from inspector.model import PyTree
from inspector.producers.arrays.leaves import Leaf, attributes_of, unboxed

# Objects of these types contain no arrays.
_PLAIN = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type, str, bytes, int, float,
          bool, type(None))  # fmt: skip
_MOST_OBJECTS = 2000
LEAST_BYTES = 64 * 2**10  # of a constant that is recorded
_DEEPEST = 4  # attributes of attributes
_KERAS, _OPTIMIZERS = "keras.src.backend.common.variables", "keras.src.optimizers.base_optimizer"


class OwnName(NamedTuple):
    """The name that a library gives to an array, and its group if the library knows it."""

    path: str
    group: Group | None


def trees_of_objects(variables: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the pytrees with arrays in variables and in the attributes of their objects, with their paths."""
    seen: set[int] = set()
    waiting = [(name, value, 0) for name, value in variables]
    while waiting and len(seen) < _MOST_OBJECTS:
        name, value, depth = waiting.pop(0)
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        leaves = _leaves(value)
        if any(isinstance(leaf.value, jax.Array) for leaf in leaves):
            yield name, value
        if depth < _DEEPEST:
            for leaf in leaves:
                if isinstance(leaf.value, (*_PLAIN, jax.Array)):
                    continue
                below = "/".join(filter(None, (name, leaf.path)))
                waiting += (
                    (f"{below}/{attribute.strip('_')}", held, depth + 1)
                    for attribute, held in attributes_of(leaf.value).items()
                )


def arrays_of_function(function: Callable[..., object] | None) -> Iterator[tuple[str, Any]]:
    """Yield the large arrays that a function uses without having them as arguments, by their names.

    They are variables around it, or of the functions that it calls by name. JAX makes them constants.
    """
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        wrapped = (getattr(value, name, None) for name in ("__wrapped__", "func"))
        waiting += (inner for inner in wrapped if inner is not None)
        value = getattr(value, "__func__", value)
        if not isinstance(value, FunctionType):
            continue
        for name, held in _variables_of(value):
            if isinstance(held, FunctionType):
                if not is_library(held.__code__.co_filename):
                    waiting.append(held)
            elif not isinstance(held, _PLAIN):
                for leaf in _leaves(held):
                    array = isinstance(leaf.value, (jax.Array, np.ndarray))
                    if array and leaf.value.nbytes >= LEAST_BYTES:
                        yield "/".join(filter(None, (name, leaf.path))), leaf.value


def _variables_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables of other scopes that a function refers to, also inside of nested functions."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it has no value yet
            yield name, cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += (constant for constant in code.co_consts if isinstance(constant, CodeType))
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _leaves(value: PyTree) -> list[Leaf]:
    try:
        return list(unboxed(value))
    except Exception:  # a class of the program whose flatten function fails
        return []


def names_of_libraries() -> dict[int, OwnName]:
    """Return the names of the values of Keras variables by `id`. Their paths are those of a LayoutMap."""
    variables, optimizers = sys.modules.get(_KERAS), sys.modules.get(_OPTIMIZERS)
    kind = getattr(variables, "Variable", None)
    if kind is None:
        return {}
    optimizer = getattr(optimizers, "BaseOptimizer", None)
    found, state = [], set()
    for value in gc.get_objects():
        if issubclass(type(value), kind):
            found.append(value)
        elif optimizer is not None and issubclass(type(value), optimizer):
            state |= {id(variable) for variable in value.variables}
    names = {}
    for variable in found:
        held = vars(variable)
        group: Group | None = None
        if id(variable) in state:
            group = "opt_state"
        elif held.get("_trainable"):
            group = "params"
        if isinstance(held.get("_value"), jax.Array) and held.get("_path"):
            names[id(held["_value"])] = OwnName(held["_path"], group)
    return names
