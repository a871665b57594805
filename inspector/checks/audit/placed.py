"""What decides the spec of an array in a layout: its logical axes, by rules, or its place in the model.

In a model with device axes a PartitionSpec is written at every place of a block. Which arrays of a Snapshot
are those of a place, only their paths tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inspector.core.rules import linen, nnx
from inspector.core.snapshot import Array, Spec
from inspector.layout import Layout

LogicalAxes = tuple[str | None, ...]

# The place whose only dimension a scan puts before those of each parameter.
STACK = "layer"

# Model → how the paths of a place's arrays end. The optimizer's moments end like their parameters.
_PATHS: Mapping[str, Mapping[tuple[str, ...], str]] = {
    "mlp": {
        ("Dense_0", "kernel"): "W1",
        ("W2",): "W2",
        ("batch", "x"): "x",
        ("batch", "y"): "z",  # what the output is to be
        ("output",): "z",
    }
}


@dataclass(frozen=True)
class Place:
    """A place of a model with device axes; `stacked` where a scan has stacked the arrays of all blocks."""

    name: str
    stacked: bool


# None for an array that nothing names, which lies whole.
Subject = LogicalAxes | Place | None


def subject_of(array: Array, layout: Layout) -> Subject:
    """What decides the array's spec in any layout of this model."""
    if layout.entry.has_rules:
        return array.logical_axes
    keys = tuple(array.path.split("/"))
    for end, name in _PATHS.get(layout.model, {}).items():
        more = len(array.shape or ()) - len(layout.entry.partitions[name])
        if keys[-len(end) :] == end and more in (0, 1):
            return Place(name, stacked=more == 1)
    return None


def spec_of(subject: Subject, rank: int, layout: Layout) -> Spec:
    """The spec that the layout gives an array of so many dimensions.

    Raises:
      ValueError: a logical axis occurs twice in it, which Linen does not support.
    """
    if subject is None:
        return (None,) * rank
    if isinstance(subject, Place):
        stack = layout.specs[STACK] if subject.stacked else ()
        return (*(stack or ()), *(layout.specs[subject.name] or ()))
    if layout.entry.rules_semantics == "nnx":
        return nnx.partition_spec(subject, layout.rules)
    return linen.partition_spec(subject, layout.rules)
