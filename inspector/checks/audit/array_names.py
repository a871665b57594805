"""What decides the PartitionSpec of an array: its logical axes with rules, or its place in the model."""

from dataclasses import dataclass

from inspector.core.rules import linen, nnx
from inspector.core.snapshot import Array, Spec
from inspector.layout import Layout

LogicalAxes = tuple[str | None, ...]

# The partition whose only dimension a scan puts before the dimensions of each parameter.
STACK = "layer"


@dataclass(frozen=True)
class Place:
    """A partition of a model with device axes. `stacked`: a scan has stacked the arrays of all blocks."""

    name: str
    stacked: bool


# None for an array without names, which is replicated.
Naming = LogicalAxes | Place | None


def naming_of(array: Array, layout: Layout) -> Naming:
    """Return what decides the array's spec in any layout of this model."""
    if layout.entry.has_rules:
        return array.logical_axes
    keys = tuple(array.path.split("/"))
    for end, name in layout.entry.partition_paths.items():
        more = len(array.shape or ()) - len(layout.entry.partitions[name])
        if keys[-len(end) :] == end and more in (0, 1):
            return Place(name, stacked=more == 1)
    return None


def axes_of(array: Array, layout: Layout) -> LogicalAxes:
    """Return the logical axis of each dimension, None for one without."""
    naming = naming_of(array, layout)
    if isinstance(naming, Place):
        stack = layout.entry.partitions[STACK] if naming.stacked else ()
        return (*stack, *layout.entry.partitions[naming.name])
    return naming or (None,) * len(array.shape or ())


def spec_of(naming: Naming, rank: int, layout: Layout) -> Spec:
    """Return the spec that the layout gives an array with `rank` dimensions.

    Raises:
      ValueError: if a logical axis occurs twice, which Linen does not support.
    """
    if naming is None:
        return (None,) * rank
    if isinstance(naming, Place):
        stack = layout.specs[STACK] if naming.stacked else ()
        return (*(stack or ()), *(layout.specs[naming.name] or ()))
    of_nnx = layout.entry.rules_semantics == "nnx"
    partition_spec = nnx.partition_spec if of_nnx else linen.partition_spec
    return partition_spec(naming, layout.rules)
