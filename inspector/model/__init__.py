"""What a model tells the inspector: static facts before it is built, and what building it returns.

A model of your own is a function `build(**sizes) -> Model` in a module of yours, named on the command line
as `--model package.module:build`. Its keyword parameters with a number, a text or a truth value as default
are the sizes that can be set. `examples/` has one for Flax Linen and one for Flax nnx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from inspector.core.rules import Rule
from inspector.core.snapshot import Spec

SizeValue = int | float | bool | str

# What names at dimensions are: logical axes, which rules take to mesh axes, or mesh axes themselves.
Names = Literal["logical", "mesh"]

# How rules are read: Linen's first whose mesh axes are free, or nnx's last for a name, else the name itself.
RulesSemantics = Literal["linen", "nnx"]


@dataclass(frozen=True)
class Size:
    """One number or choice that a person sets: its default, what it means and what is allowed.

    `choices` lists the allowed texts of a text size, none where any will do; `least` and `most` bound a
    number where they are given.
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
    `names` and `rules_semantics` are those of the `Model`; `own` marks one that is not of this project.
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
        """Every size of the model as the preset has it."""
        return {size.name: preset.sizes.get(size.name, size.default) for size in self.sizes}


Batch = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A built model, ready to be traced: pure functions over pytrees, and how their leaves are named.

    init(key, batch) -> state: parameters, optimizer state and whatever else a step carries on, any pytree:
      a Flax TrainState, an nnx state, a dict. What is under `params` and `opt_state` counts as such. Leaves
      may be boxed (`nn.Partitioned`, `nn.LogicallyPartitioned`) or nnx variables with sharding metadata; a
      leaf whose dimensions nothing names is replicated.
    step(state, batch) -> (state, loss): one training step; the loss is a scalar.
    batch(key) -> batch: example input, arrays by name, drawn anew from a key.

    All else is optional:

    apply(state, batch) -> output: inference; without it there is no such program.
    batch_axes: the names of each dimension of arrays of the batch; one that it lacks is replicated.
    output_axes: the names of each dimension of the output, one array; None replicates any output.
    names: whether all these name logical axes or mesh axes.
    rules: rules to start from, as Flax has them: `("embed", "fsdp")`, `("batch", ("data", "fsdp"))`,
      `("heads", None)`. A layout has those whose mesh axes its mesh has.
    rules_semantics: how a layout's rules are read for this model.
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


# The PartitionSpecs a person has given to the places of a model with partitions.
Partitions = Mapping[str, Spec]
