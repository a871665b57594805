"""What a model tells the inspector: static facts before it is built, and what building it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inspector.rules import Rule
from inspector.snapshot import Spec

SizeValue = int | float | bool | str


@dataclass(frozen=True)
class Size:
    """One number or choice that a person sets: its default, what it means and what is allowed.

    `choices` lists the allowed texts of a text size; `least` and `most` bound a number.
    """

    name: str
    default: SizeValue
    meaning: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class SizePreset:
    """Sizes that belong together, such as those of a published model; the others have their defaults."""

    name: str
    meaning: str
    sizes: Mapping[str, SizeValue]


@dataclass(frozen=True)
class ModelEntry:
    """A model in the catalogue, described without importing JAX.

    `build` is `package.module:function`. A model with `partitions` names mesh axes at its parameters
    and activations: one PartitionSpec each, in terms of the logical axes of its dimensions, which the
    presets use. A model without them has logical axes, which rules take to mesh axes. `constraints`
    names the activations whose sharding constraint can be switched off. `presets` are sizes to start
    from. `extents` tells which size is the extent of a logical axis; one that it lacks is not told.
    """

    name: str
    title: str
    build: str
    sizes: tuple[Size, ...]
    logical_axes: Mapping[str, str]
    rules: tuple[Rule, ...]
    partitions: Mapping[str, tuple[str, ...]]
    constraints: tuple[str, ...] = ()
    presets: tuple[SizePreset, ...] = ()
    extents: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_rules(self) -> bool:
        return not self.partitions

    def size(self, name: str) -> Size | None:
        return next((size for size in self.sizes if size.name == name), None)

    def sizes_of(self, preset: SizePreset) -> dict[str, SizeValue]:
        """Every size of the model as the preset has it."""
        return {size.name: preset.sizes.get(size.name, size.default) for size in self.sizes}


Batch = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """A built model, ready to be traced: pure functions over pytrees, and how their leaves are named.

    init(key, batch) -> state: parameters, optimizer state and whatever else a step carries on. Leaves
      may be boxed (`nn.Partitioned`, `nn.LogicallyPartitioned`); a leaf without a box is replicated.
    step(state, batch) -> (state, loss): one training step; the loss is a scalar.
    apply(state, batch) -> output: inference.
    batch(key) -> batch: example input by name, drawn anew from a key.
    batch_axes: the names of each dimension of each array of the batch.
    output_axes: the names of each dimension of the output, one array.
    names: whether boxes and the two above name logical axes or mesh axes.
    """

    init: Callable[[Any, Batch], Any]
    step: Callable[[Any, Batch], tuple[Any, Any]]
    apply: Callable[[Any, Batch], Any]
    batch: Callable[[Any], Batch]
    batch_axes: Mapping[str, tuple[Any, ...]]
    output_axes: tuple[Any, ...]
    names: Literal["logical", "mesh"]


# The PartitionSpecs a person has given to the places of a model with partitions.
Partitions = Mapping[str, Spec]
