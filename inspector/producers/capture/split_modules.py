"""Name the arguments and results of functions whose jit splits modules into arrays.

`nnx.jit` and `eqx.filter_jit` number the arrays of a module. `named_jit` of Haliax separates donated arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from inspector.model import PyTree
from inspector.producers.arrays.leaves import Leaf, unboxed

if TYPE_CHECKING:
    from inspector.producers.jax_internals.compile_hook import Split

_NNX, _EXTRACT = "flax.nnx", "flax.nnx.extract"


def arguments(tree: PyTree, split: Split | None = None) -> Iterator[Leaf]:
    """Yield every leaf of the arguments or results of a jitted function, in the order of the tree.

    A leaf of a split module has the path that it has in the module.

    Args:
      split: the `Split` of the hook for arguments of Equinox and Haliax, None for others.
    """
    whole = merged(tree, split)
    named = {} if whole is None else {id(leaf.value): leaf for leaf in unboxed(whole)}
    for leaf in unboxed(tree, modules=False):
        yield named.get(id(leaf.value), leaf)


def merged(tree: PyTree, split: Split | None = None) -> PyTree | None:
    """Return the pytree with modules for their parts, or None without any, or if they cannot be merged.

    With a `split`, it consists of positional and keyword arguments. The latter include `self`: the function
    itself, if it is a module or a method of one.
    """
    if split is not None:
        try:
            return _called(tree, split)
        except Exception:  # how these libraries split modules is not a public interface
            return None
    nnx, extract = sys.modules.get(_NNX), sys.modules.get(_EXTRACT)
    kind = getattr(extract, "NodeStates", None)
    if nnx is None or kind is None:
        return None
    nodes, structure = jax.tree.flatten(tree, is_leaf=lambda node: isinstance(node, kind))
    if not any(isinstance(node, kind) for node in nodes):
        return None
    try:
        # Modules of several arguments can share variables, so they are merged together.
        with nnx.merge_context(None, True) as context:
            modules = [
                context.unflatten(node.graphdef, *node.states) if isinstance(node, kind) else node
                for node in nodes
            ]
        return jax.tree.unflatten(structure, modules)
    except Exception:  # how flax splits modules is not a public interface
        return None


def _called(tree: PyTree, split: Split) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of a function of Equinox or Haliax."""
    (donated, others), _ = tree
    if split.library == "haliax":
        function, (positional, keywords) = jax.tree.map(
            lambda array, other: other if array is None else array,
            donated,
            others,
            is_leaf=lambda node: node is None,
        )
    else:
        parts = {**donated, **others}
        function, first, (rest, keywords) = (
            structure.unflatten(parts[name])
            for name, structure in zip(("fun", "first", "rest"), split.structures, strict=True)
        )
        positional = (first, *rest)[:-1]  # Equinox appends None, so that there is a first argument
    return positional, {**keywords, "self": function}
