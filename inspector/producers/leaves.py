"""The leaves of a batch, a train state and an output: their paths, groups and boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from flax.core import meta

from inspector.model import Model
from inspector.snapshot import Box, Group


@dataclass(frozen=True)
class Leaf:
    """One array, abstract or live. `names` are its dimensions' names, None where nothing names them."""

    path: str
    group: Group
    value: Any
    names: tuple[Any, ...] | None
    box: Box | None = None


def all_leaves(model: Model, batch: Any, state: Any, output: Any) -> list[Leaf]:
    """Every array of a model: what goes in, what is carried on, what comes out."""
    inputs = [
        Leaf(f"batch/{name}", "batch", value, tuple(model.batch_axes[name]))
        for name, value in batch.items()
    ]
    return [*inputs, *leaves_of(state), Leaf("output", "output", output, tuple(model.output_axes))]


def leaves_of(tree: Any) -> Iterator[Leaf]:
    """Every array of a tree, the boxes opened, in the order of the tree."""
    for key_path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=meta.is_axis_metadata):
        path = jax.tree_util.keystr(key_path, simple=True, separator="/")
        if isinstance(leaf, meta.Partitioned):
            names = tuple(leaf.names)
            yield Leaf(path, _group(path), leaf.value, names, _box(leaf, names))
        else:
            yield Leaf(path, _group(path), leaf, None)


def _box(leaf: meta.Partitioned, names: tuple[Any, ...]) -> Box:
    entries = tuple(
        (name,) if isinstance(name, str) else tuple(name) if name else None for name in names
    )
    return Box(type(leaf).__name__, entries)


def _group(path: str) -> Group:
    first = path.split("/")[0]
    return first if first in ("params", "opt_state") else "other"
