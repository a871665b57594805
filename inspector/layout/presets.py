"""Ready layouts that people start from: axis names and rules for a number of devices.

A preset belongs to the models whose logical axes its rules name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.core.rules import Rule
from inspector.layout import Layout, specs_from_rules
from inspector.model import ModelEntry


@dataclass(frozen=True)
class Preset:
    """A way to lay out a model: which mesh axes there are, and what they split."""

    name: str
    meaning: str
    axis_names: tuple[str, ...]
    rules: tuple[Rule, ...]

    def fits(self, entry: ModelEntry) -> bool:
        """Whether the model has every logical axis that the rules name."""
        return all(name in entry.logical_axes for name, _ in self.rules)

    def applied_to(self, layout: Layout) -> Layout:
        """The layout with this preset's mesh and rules, on as many devices as it has now.

        The mesh is the most even one that divides whatever the model tells of its sizes, or the most even
        one of all where none does.
        """
        shapes = mesh_shapes(layout.devices, len(self.axis_names))
        dividing = next((shape for shape in shapes if self._divides(layout, shape)), shapes[0])
        changed = replace(layout, mesh_shape=dividing, axis_names=self.axis_names)
        if layout.entry.has_rules:
            return replace(changed, rules=self.rules_for(layout.entry))
        return replace(changed, specs=specs_from_rules(layout.entry, self.rules))

    def rules_for(self, entry: ModelEntry) -> tuple[Rule, ...]:
        """The rules, and for a model that nnx reads them for, one to none for every other name.

        To nnx a name without a rule is a mesh axis.
        """
        if entry.rules_semantics == "linen":
            return self.rules
        ruled = {name for name, _ in self.rules}
        return (*self.rules, *((name, ()) for name in entry.logical_axes if name not in ruled))

    def describes(self, layout: Layout) -> bool:
        """Whether the layout is this preset on some mesh of the right rank."""
        if layout.axis_names != self.axis_names:
            return False
        if layout.entry.has_rules:
            return layout.rules == self.rules_for(layout.entry)
        return layout.specs == specs_from_rules(layout.entry, self.rules)

    def _divides(self, layout: Layout, shape: tuple[int, ...]) -> bool:
        """Whether every size that a rule splits is a multiple of the ways in which it is split."""
        ways = dict(zip(self.axis_names, shape, strict=True))
        return all(
            layout.sizes[layout.entry.extents[name]] % math.prod(ways[axis] for axis in axes) == 0
            for name, axes in self.rules
            if name in layout.entry.extents
        )


# Data and FSDP name nothing but batch and embed, so that they fit every model.
MLP_PRESETS = (
    Preset(
        "Data",
        "every device has all parameters and a part of the batch",
        ("data",),
        (("batch", ("data",)),),
    ),
    Preset(
        "Tensor",
        "each matrix is cut along its hidden dimension",
        ("model",),
        (("hidden", ("model",)),),
    ),
    Preset(
        "Data + tensor",
        "groups of devices share the matrices, and each group has a part of the batch",
        ("data", "model"),
        (("batch", ("data",)), ("hidden", ("model",))),
    ),
    Preset(
        "FSDP",
        "batch and parameters are cut over the same axis; parameters are gathered when needed",
        ("fsdp",),
        (("batch", ("fsdp",)), ("embed", ("fsdp",))),
    ),
    Preset(
        "FSDP + tensor",
        "parameters are cut over both axes, the batch over the first",
        ("fsdp", "tensor"),
        (("batch", ("fsdp",)), ("embed", ("fsdp",)), ("hidden", ("tensor",))),
    ),
)


def _tensor(axis: str) -> tuple[Rule, ...]:
    """What tensor parallelism splits in a transformer: whatever a layer has many of."""
    return tuple((name, (axis,)) for name in ("vocab", "mlp", "heads", "kv_heads"))


# A weight and an activation that share a logical axis share its rules, and the first rule whose mesh axes are
# free decides: `embed` splits a weight over fsdp and leaves an activation whole, whose batch has taken fsdp.
TRANSFORMER_PRESETS = (
    Preset(
        "Data + tensor",
        "groups of devices share the matrices, and each group has a part of the batch",
        ("data", "model"),
        (*_tensor("model"), ("batch", ("data",))),
    ),
    Preset(
        "FSDP + tensor",
        "parameters are cut over both axes, the batch over the first",
        ("fsdp", "tensor"),
        (*_tensor("tensor"), ("batch", ("fsdp",)), ("embed", ("fsdp",))),
    ),
    # The rule of seq comes last, so that tokens are cut only where heads, mlp and vocab are not
    # (sequence parallelism, Korthikanti et al. 2022, arXiv:2205.05198).
    Preset(
        "Tensor + sequence",
        "as Data + tensor; where nothing else is cut over the tensor axis, the sequence is",
        ("data", "tensor"),
        (*_tensor("tensor"), ("batch", ("data",)), ("seq", ("tensor",))),
    ),
    # MaxText's rules of August 2026 (src/maxtext/configs/base.yml) for those of its mesh axes that people set
    # above 1. It has names of their own for activations; here the second rule of embed is theirs, for it is
    # reached only where batch has taken fsdp. Its norm is our embed, and stays with it.
    Preset(
        "MaxText",
        "MaxText's mesh axes and rules: FSDP, the sequence over context, and tensor",
        ("data", "fsdp", "context", "tensor"),
        (
            *_tensor("tensor"),
            ("head_dim", ()),
            ("batch", ("data", "fsdp")),
            ("embed", ("fsdp", "context")),
            ("seq", ("context",)),
            ("embed", ("tensor",)),
        ),
    ),
    # T5X's standard_logical_axis_rules (t5x/partitioning.py). Its kv is our head_dim, its length our seq; it
    # has no kv_heads, which go with the heads.
    Preset(
        "T5X, 1D",
        "T5X's rules with one dimension cut in parameters and one in activations",
        ("data", "model"),
        (
            ("batch", ("data",)),
            ("vocab", ("model",)),
            ("embed", ()),
            ("mlp", ("model",)),
            ("heads", ("model",)),
            ("kv_heads", ("model",)),
            ("head_dim", ()),
            ("seq", ()),
            ("layers", ()),
        ),
    ),
    Preset(
        "T5X, 2D",
        "T5X's rules with two dimensions cut in parameters and two in activations",
        ("data", "model"),
        (
            ("batch", ("data",)),
            ("vocab", ("model",)),
            ("mlp", ("model",)),
            ("heads", ("model",)),
            ("kv_heads", ("model",)),
            ("head_dim", ()),
            ("embed", ("model",)),
            ("embed", ("data",)),
            ("seq", ()),
            ("layers", ()),
        ),
    ),
)

# `expert` comes before `batch`: where an array has both, experts are split over the expert axis and the
# sequences over what is left; elsewhere the expert axis splits sequences, too. It is the last axis of those
# that split the batch, so that an all-to-all within each group of experts takes one to the other.
MOE_PRESETS = (
    Preset(
        "Expert",
        "each device has some experts, and all parameters are cut over all devices",
        ("fsdp", "expert"),
        (
            ("expert", ("expert",)),
            ("batch", ("fsdp", "expert")),
            ("batch", ("fsdp",)),
            ("embed", ("fsdp", "expert")),
            ("embed", ("fsdp",)),
        ),
    ),
    Preset(
        "Expert + tensor",
        "as Expert, with each expert and each attention layer cut over a tensor axis",
        ("fsdp", "expert", "tensor"),
        (
            ("expert", ("expert",)),
            *_tensor("tensor"),
            ("batch", ("fsdp", "expert")),
            ("batch", ("fsdp",)),
            ("embed", ("fsdp", "expert")),
            ("embed", ("fsdp",)),
        ),
    ),
    Preset(
        "MaxText, experts",
        "MaxText's mesh axes and rules: FSDP, experts and tensor",
        ("data", "fsdp", "expert", "tensor"),
        (
            ("expert", ("expert",)),
            *_tensor("tensor"),
            ("head_dim", ()),
            ("batch", ("data", "fsdp", "expert")),
            ("batch", ("data", "fsdp")),
            ("embed", ("fsdp", "expert")),
            ("embed", ("fsdp",)),
            ("embed", ("tensor",)),
        ),
    ),
    # t5x/contrib/moe, where batch is (expert, data); its expert_mlp is our mlp.
    Preset(
        "T5X, experts",
        "T5X's rules for mixtures of experts",
        ("expert", "data", "model"),
        (
            ("expert", ("expert",)),
            ("batch", ("expert", "data")),
            ("batch", ("data",)),
            ("vocab", ("model",)),
            ("mlp", ("model",)),
            ("heads", ("model",)),
            ("kv_heads", ("model",)),
            ("head_dim", ()),
            ("embed", ("model",)),
            ("seq", ()),
            ("layers", ()),
        ),
    ),
)


def fitting(entry: ModelEntry) -> tuple[Preset, ...]:
    """The presets that belong to this model; no two of them have the same name."""
    everything = (*MLP_PRESETS, *TRANSFORMER_PRESETS, *MOE_PRESETS)
    # A person's own model may have the logical axes of two of ours.
    return tuple(
        {preset.name: preset for preset in everything[::-1] if preset.fits(entry)}.values()
    )[::-1]


def matching(layout: Layout) -> Preset | None:
    """The preset that the layout is, if it is one."""
    return next((preset for preset in fitting(layout.entry) if preset.describes(layout)), None)


def mesh_shape(devices: int, axes: int) -> tuple[int, ...]:
    """`devices` on so many axes, as evenly as they go, the smaller first."""
    return mesh_shapes(devices, axes)[0]


def mesh_shapes(devices: int, axes: int) -> list[tuple[int, ...]]:
    """Every mesh of so many axes and devices, the most even first, and of those the smaller axes first."""
    return sorted(_factorings(devices, axes), key=lambda shape: (sum(shape), shape))


def _factorings(number: int, factors: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of so many whole numbers, in every order."""
    if factors == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _factorings(number // first, factors - 1):
                yield (first, *rest)
