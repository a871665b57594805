"""A user's model as functions that JAX can trace: they take and return arrays only.

A batch given as arrays or shapes becomes a function. Leaves of a state that are not arrays, such as the
functions in an Equinox module, are constants: `init` returns None for each, and the other functions get the
constants back before they run.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from inspector.model import Model, PyTree
from inspector.tracing.leaves import structure_of

_ARRAYS = (jax.Array, np.ndarray, np.generic)
_NUMBERS = (bool, int, float, complex)
_ARRAY = object()  # in the place of an array among constants


@dataclass(frozen=True)
class _Batch:
    """A function that makes a batch of given arrays or shapes.

    Arrays of whole numbers are zeros, because a token must be below the size of the vocabulary.
    """

    arrays: Mapping[str, Any]

    def __call__(self, key: jax.Array) -> dict[str, Any]:
        return {name: self._array(value, key) for name, value in self.arrays.items()}

    @staticmethod
    def _array(value: PyTree, key: jax.Array) -> PyTree:
        if isinstance(value, _ARRAYS):
            return jnp.asarray(value)
        if jnp.issubdtype(value.dtype, jnp.floating):
            return jax.random.normal(key, value.shape, value.dtype)
        return jnp.zeros(value.shape, value.dtype)


@dataclass(frozen=True)
class StateLeaves:
    """The structure of a state, and its leaves: each constant, and `_ARRAY` for each array."""

    structure: PyTree
    leaves: tuple[Any, ...]

    def put_into(self, arrays: PyTree) -> PyTree:
        """Return the state with these arrays, which are in the order of its leaves."""
        given = iter(jax.tree.leaves(arrays))
        return jax.tree.unflatten(
            self.structure, [next(given) if leaf is _ARRAY else leaf for leaf in self.leaves]
        )


class _Init:
    """`init` without the constants of its state, which it keeps. They are the same at each call."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self.constants: StateLeaves | None = None
        self.is_traced = False

    def __call__(self, key: jax.Array, batch: PyTree) -> PyTree:
        arrays, self.constants = split(self._function(key, batch))
        self.is_traced = True
        return arrays

    def whole(self, state: PyTree, batch: PyTree) -> PyTree:
        """Return the state with its constants."""
        if not self.is_traced:
            jax.eval_shape(self, jax.random.key(0), batch)
        return state if self.constants is None else self.constants.put_into(state)


def batch_function(model: Model) -> Callable[[Any], dict[str, Any]]:
    """Return the function of a traceable model that makes a batch from a random key."""
    assert callable(model.batch)
    return model.batch


def traceable(model: Model) -> Model:
    """Return the model with functions of arrays."""
    init = _Init(model.init)

    def of_arrays(function: Callable[[Any, Any], Any] | None) -> PyTree:
        if function is None:
            return None
        return lambda state, batch: split(function(init.whole(state, batch), batch))[0]

    return replace(
        model,
        init=init,
        batch=model.batch if callable(model.batch) else _Batch(model.batch),
        step=of_arrays(model.step),
        apply=of_arrays(model.apply),
        programs={name: of_arrays(function) for name, function in model.programs.items()},
    )


def is_changed(model: Model) -> bool:
    """Return whether a traceable model, whose init was traced, differs from the user's model."""
    has_constants = isinstance(model.init, _Init) and model.init.constants is not None
    return isinstance(model.batch, _Batch) or has_constants


def returns_state(function: Callable[[Any, Any], Any], state: PyTree, batch: PyTree) -> bool:
    """Return whether a program with these abstract arguments returns `(state, output)`."""
    result = jax.eval_shape(function, state, batch)
    return isinstance(result, tuple) and len(result) == 2 and structure_of(result[0]) == structure_of(state)


def split(tree: PyTree) -> tuple[Any, StateLeaves | None]:
    """Return a pytree with None for each constant, and the constants, or None if there are none.

    Numbers of Python are constants inside of an Equinox module, as for `equinox.filter_jit`.
    """
    equinox = sys.modules.get("equinox")

    def is_module(node: PyTree) -> bool:
        return equinox is not None and isinstance(node, equinox.Module)

    constant: list[bool] = []
    for node in jax.tree.leaves(tree, is_leaf=is_module):
        arrays = _ARRAYS if is_module(node) else _ARRAYS + _NUMBERS
        constant += [not isinstance(leaf, arrays) for leaf in jax.tree.leaves(node)]
    if not any(constant):
        return tree, None
    leaves, structure = jax.tree.flatten(tree)
    pairs = list(zip(leaves, constant, strict=True))
    kept = jax.tree.unflatten(structure, [None if fixed else leaf for leaf, fixed in pairs])
    return kept, StateLeaves(structure, tuple(leaf if fixed else _ARRAY for leaf, fixed in pairs))
