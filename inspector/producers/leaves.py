"""The leaves of a batch, a train state and an output: their paths, groups and boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from inspector.core.snapshot import Box, Group
from inspector.model import Model
from inspector.producers.boxes import opened


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
    return [*inputs, *leaves_of(state), *_outputs(model, output)]


def _outputs(model: Model, output: Any) -> Iterator[Leaf]:
    """The output, one array or any tree of them; nothing of a model that has no inference."""
    if model.output_axes is not None:
        yield Leaf("output", "output", output, tuple(model.output_axes))
        return
    for one in opened(output):
        yield Leaf("/".join(filter(None, ("output", one.path))), "output", one.value, one.names)


def leaves_of(tree: Any) -> Iterator[Leaf]:
    """Every array of a tree, the boxes opened, in the order of the tree."""
    for one in opened(tree):
        yield Leaf(one.path, one.group or _group(one.path), one.value, one.names, one.box)


def _group(path: str) -> Group:
    first = path.split("/")[0]
    return first if first in ("params", "opt_state") else "other"
