"""Flax nnx as the inspector traces it: rules decide where a variable goes, and not its creation."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def without_eager_sharding() -> Iterator[None]:
    """Within it, an nnx variable with logical names is not put on mesh axes of these names at once.

    Does nothing where nobody has imported nnx.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not hasattr(nnx, "use_eager_sharding"):
        yield
        return
    with nnx.use_eager_sharding(False):
        yield


@contextlib.contextmanager
def nnx_rules(rules: Sequence[tuple[str, Any]]) -> Iterator[None]:
    """Within it, `nnx.get_partition_spec` reads these rules."""
    spmd = sys.modules.get("flax.core.spmd")
    if spmd is None:
        yield
        return
    with spmd.logical_axis_rules(rules):
        yield


def named_variables(tree: Any, chosen: Any) -> Any:
    """The tree with `chosen(variable)` in every variable of it, and `chosen(None)` for other leaves."""
    import jax

    nnx = sys.modules["flax.nnx"]
    return jax.tree.map(
        lambda leaf: leaf.replace(chosen(leaf)) if isinstance(leaf, nnx.Variable) else chosen(None),
        tree,
        is_leaf=lambda leaf: isinstance(leaf, nnx.Variable),
    )
