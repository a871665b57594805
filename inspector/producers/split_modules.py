"""Name the arguments and results of `nnx.jit`, which splits each module into numbered arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import jax

from inspector.producers.leaves import Leaf, unboxed

_NNX, _EXTRACT = "flax.nnx", "flax.nnx.extract"


def arguments(tree: Any) -> Iterator[Leaf]:
    """Yield every leaf of the arguments or results of a jitted function, in the order of the tree.

    A leaf of a split module has the path that it has in the module.
    """
    whole = merged(tree)
    named = {} if whole is None else {id(leaf.value): leaf for leaf in unboxed(whole)}
    for leaf in unboxed(tree, modules=False):
        yield named.get(id(leaf.value), leaf)


def merged(tree: Any) -> Any:
    """Return the pytree with modules for their parts, or None if it has none or they cannot be merged."""
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
            made = [
                context.unflatten(node.graphdef, *node.states) if isinstance(node, kind) else node
                for node in nodes
            ]
        return jax.tree.unflatten(structure, made)
    except Exception:  # how flax splits modules is not a public interface
        return None
