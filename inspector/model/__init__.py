"""Descriptions of models: static facts in the catalogue, and the `Model` that a build function returns.

Your own model is a function `build(**sizes) -> Model`, passed as `--model package.module:build`. Its keyword
parameters with a number, text or bool as default are the sizes that can be set. See `examples/` for Linen
and nnx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from inspector.core.rules import Rule, RulesSemantics
from inspector.core.snapshot import Spec

SizeValue = int | float | bool | str

# Names of dimensions: logical axes, which rules map to mesh axes, or mesh axes.
Names = Literal["logical", "mesh"]


@dataclass(frozen=True)
class Size:
    """A number, switch or choice of a model: its default, meaning and allowed values.

    `choices` are the allowed texts; empty allows any text. `least` and `most` bound a number.
    """

    name: str
    default: SizeValue
    meaning: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class SizePreset:
    """Sizes of a published model. The other sizes have their defaults."""

    name: str
    meaning: str
    sizes: Mapping[str, SizeValue]


@dataclass(frozen=True)
class ModelEntry:
    """A model in the catalogue, described without importing JAX.

    Attributes:
      build: `package.module:function`.
      logical_axes: the meaning of each logical axis.
      partitions: the logical axes of each parameter and activation that has a PartitionSpec. Empty for a
        model with logical axes and rules.
      constraints: activations whose sharding constraint can be switched off.
      presets: sizes to start from.
      extents: the size that is the extent of a logical axis, where known.
      names, rules_semantics: as in `Model`.
      own: whether it is the user's own model.
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
    names: Names = "logical"
    rules_semantics: RulesSemantics = "linen"
    own: bool = False
    # The ends of the array paths that belong to each partition. Moments end like their parameters.
    partition_paths: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def has_rules(self) -> bool:
        return self.names == "logical" and not self.partitions

    def size(self, name: str) -> Size | None:
        return next((size for size in self.sizes if size.name == name), None)

    def sizes_of(self, preset: SizePreset) -> dict[str, SizeValue]:
        """Return every size of the model, with the values of the preset."""
        return {size.name: preset.sizes.get(size.name, size.default) for size in self.sizes}


Batch = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Model:
    """Pure functions over pytrees, ready to be traced, and the names of their dimensions.

    Attributes:
      init: (key, batch) -> state, any pytree, such as a Flax TrainState. Leaves can be boxes
        (`nn.Partitioned`, `nn.LogicallyPartitioned`) or nnx variables with sharding metadata. A leaf without
        names is replicated.
      step: (state, batch) -> (state, loss), one training step with a scalar loss.
      batch: key -> batch, random input arrays by name.
      apply: (state, batch) -> output, inference, or None.
      batch_axes: names of the dimensions of batch arrays. A missing array is replicated.
      output_axes: names of the dimensions of the output; None replicates it.
      names: whether these are logical axes or mesh axes.
      rules: default rules as in Flax: `("embed", "fsdp")`, `("batch", ("data", "fsdp"))`, `("heads", None)`.
        Rules with unknown mesh axes are left out.
      rules_semantics: how rules are applied.
    """

    init: Callable[[Any, Batch], Any]
    step: Callable[[Any, Batch], tuple[Any, Any]]
    batch: Callable[[Any], Batch]
    apply: Callable[[Any, Batch], Any] | None = None
    batch_axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    output_axes: tuple[Any, ...] | None = None
    names: Names = "logical"
    rules: Sequence[tuple[str, Any]] = ()
    rules_semantics: RulesSemantics = "linen"


# The PartitionSpec of each place of a model with partitions.
Partitions = Mapping[str, Spec]
