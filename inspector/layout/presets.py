"""Presets: mesh axis names and rules to start from.

A preset fits the models that have all logical axes of its rules.
"""

import functools
import math
from dataclasses import dataclass, replace

from inspector.layout import Layout, print_mesh, specs_from_rules
from inspector.layout.fields import parse_rules
from inspector.layout.mesh_shapes import mesh_shapes
from inspector.model import ModelEntry
from inspector.sharding.rules import Rule


@dataclass(frozen=True)
class Preset:
    """A way to shard a model: mesh axes, and rules that use them."""

    name: str
    meaning: str
    axis_names: tuple[str, ...]
    rules: tuple[Rule, ...]

    def fits(self, entry: ModelEntry) -> bool:
        """Return whether the model has every logical axis that the rules name."""
        return all(name in entry.logical_axes for name, _ in self.rules)

    def applied_to(self, layout: Layout) -> Layout:
        """Return the layout with this preset's mesh and rules, on the same number of devices.

        The mesh is the most even one that divides the known sizes of the model. If no mesh divides them, it
        is the most even one.
        """
        shapes = mesh_shapes(layout.devices, len(self.axis_names))
        dividing = next((shape for shape in shapes if self._divides(layout, shape)), shapes[0])
        changed = layout.on_mesh(dividing, self.axis_names)
        if layout.entry.has_rules:
            return replace(changed, rules=self.rules_for(layout.entry))
        return replace(changed, specs=specs_from_rules(layout.entry, self.rules))

    def rules_for(self, entry: ModelEntry) -> tuple[Rule, ...]:
        """Return the rules. For nnx, add a rule to no axis for every other logical axis.

        Without a rule, nnx takes a logical axis for a mesh axis.
        """
        if entry.rules_semantics == "linen":
            return self.rules
        ruled = {name for name, _ in self.rules}
        return (*self.rules, *((name, ()) for name in entry.logical_axes if name not in ruled))

    def describes(self, layout: Layout) -> bool:
        """Return whether the layout is this preset, whatever the sizes of its mesh axes."""
        if layout.axis_names != self.axis_names:
            return False
        if layout.entry.has_rules:
            return layout.rules == self.rules_for(layout.entry)
        return layout.specs == specs_from_rules(layout.entry, self.rules)

    def _divides(self, layout: Layout, shape: tuple[int, ...]) -> bool:
        """Return whether the mesh axes of each rule divide the size of its logical axis."""
        ways = dict(zip(self.axis_names, shape, strict=True))
        return all(
            layout.sizes[layout.entry.extents[name]] % math.prod(ways[axis] for axis in axes) == 0
            for name, axes in self.rules
            if name in layout.entry.extents
        )


def _preset(name: str, meaning: str, axes: str, *rules: str) -> Preset:
    """Return a preset whose mesh axes and rules are in the text of a layout's fields."""
    names = tuple(axes.split(","))
    return Preset(name, meaning, names, parse_rules(",".join(rules), names))


# Data and FSDP use only batch and embed, so they fit every model.
MLP_PRESETS = (
    _preset("Data", "batch sharded, parameters replicated", "data", "batch=data"),
    _preset("Tensor", "each matrix sharded along its hidden dimension", "model", "hidden=model"),
    _preset(
        "Data + tensor",
        "batch sharded over one axis, matrices over the other",
        "data,model",
        "batch=data,hidden=model",
    ),
    _preset(
        "FSDP",
        "batch and parameters sharded over the same axis; parameters are all-gathered when needed",
        "fsdp",
        "batch=fsdp,embed=fsdp",
    ),
    _preset(
        "FSDP + tensor",
        "parameters sharded over both axes, batch over the first",
        "fsdp,tensor",
        "batch=fsdp,embed=fsdp,hidden=tensor",
    ),
)

# Tensor parallelism in a transformer, by the name of its axis.
_MODEL, _TENSOR = (
    ",".join(f"{name}={axis}" for name in ("vocab", "mlp", "heads", "kv_heads"))
    for axis in ("model", "tensor")
)
_WHOLE = "seq=,layers="  # T5X shards neither
_FSDP_AND_EXPERT = "batch=fsdp+expert,batch=fsdp,embed=fsdp+expert,embed=fsdp"

# Weights and activations share the rules of a logical axis, and the first rule whose mesh axes are free
# decides. So `embed` shards a weight over fsdp, but not an activation, whose batch has taken fsdp.
TRANSFORMER_PRESETS = (
    # Often there are fewer heads of keys and values than devices, so these are replicated.
    _preset(
        "Tensor",
        "matrices sharded along one dimension, batch, keys and values replicated",
        "model",
        "vocab=model,mlp=model,heads=model",
    ),
    _preset(
        "Data + tensor",
        "batch sharded over one axis, matrices over the other",
        "data,model",
        _MODEL,
        "batch=data",
    ),
    _preset(
        "FSDP + tensor",
        "parameters sharded over both axes, batch over the first",
        "fsdp,tensor",
        _TENSOR,
        "batch=fsdp,embed=fsdp",
    ),
    # The rule of seq comes last, so tokens are sharded only where heads, mlp and vocab are not (sequence
    # parallelism, Korthikanti et al. 2022, arXiv:2205.05198).
    _preset(
        "Tensor + sequence",
        "like Data + tensor; the sequence is sharded if the tensor axis is free",
        "data,tensor",
        _TENSOR,
        "batch=data,seq=tensor",
    ),
    # MaxText's rules of August 2026 (src/maxtext/configs/base.yml) for the mesh axes that are often above 1.
    # MaxText has other names for activations. The second rule of embed is theirs: it applies only where batch
    # has taken fsdp. MaxText's norm is embed here.
    _preset(
        "MaxText",
        "MaxText's mesh axes and rules: FSDP, the sequence over context, and tensor",
        "data,fsdp,context,tensor",
        _TENSOR,
        "head_dim=,batch=data+fsdp,embed=fsdp+context,seq=context,embed=tensor",
    ),
    # T5X's standard_logical_axis_rules (t5x/partitioning.py). Its kv is head_dim here, its length is seq, and
    # kv_heads follow its heads.
    _preset(
        "T5X, 1D",
        "T5X's rules: one dimension sharded in parameters and one in activations",
        "data,model",
        "batch=data,vocab=model,embed=,mlp=model,heads=model,kv_heads=model,head_dim=",
        _WHOLE,
    ),
    _preset(
        "T5X, 2D",
        "T5X's rules: two dimensions sharded in parameters and two in activations",
        "data,model",
        "batch=data",
        _MODEL,
        "head_dim=,embed=model,embed=data",
        _WHOLE,
    ),
)

# `expert` comes before `batch`: an array with both has its experts sharded over the expert axis and its
# sequences over the rest. Other arrays have sequences sharded over the expert axis too. It is the last axis
# of `batch`, so that an all-to-all within each group of experts converts between the two.
MOE_PRESETS = (
    _preset(
        "Expert",
        "experts sharded over one axis, all parameters over all devices",
        "fsdp,expert",
        "expert=expert",
        _FSDP_AND_EXPERT,
    ),
    _preset(
        "Expert + tensor",
        "like Expert; experts and attention layers are also sharded over a tensor axis",
        "fsdp,expert,tensor",
        "expert=expert",
        _TENSOR,
        _FSDP_AND_EXPERT,
    ),
    _preset(
        "MaxText, experts",
        "MaxText's mesh axes and rules: FSDP, experts and tensor",
        "data,fsdp,expert,tensor",
        "expert=expert",
        _TENSOR,
        "head_dim=",
        "batch=data+fsdp+expert,batch=data+fsdp",
        "embed=fsdp+expert,embed=fsdp,embed=tensor",
    ),
    # t5x/contrib/moe, where batch is (expert, data). Its expert_mlp is mlp here.
    _preset(
        "T5X, experts",
        "T5X's rules for mixtures of experts",
        "expert,data,model",
        "expert=expert",
        "batch=expert+data,batch=data",
        _MODEL,
        "head_dim=,embed=model",
        _WHOLE,
    ),
)


@functools.lru_cache(maxsize=64)
def fitting(entry: ModelEntry) -> tuple[Preset, ...]:
    """Return the presets that fit this model, with unique names."""
    everything = (*MLP_PRESETS, *TRANSFORMER_PRESETS, *MOE_PRESETS)
    # A user's model may have the logical axes of two catalogue models.
    return tuple({preset.name: preset for preset in everything[::-1] if preset.fits(entry)}.values())[::-1]


def matching(layout: Layout) -> Preset | None:
    """Return the preset that describes the layout, if any."""
    return next((preset for preset in fitting(layout.entry) if preset.describes(layout)), None)


def title(layout: Layout) -> str:
    """Return a short name of a layout: its preset or else its model, and its mesh, such as `FSDP 32`."""
    preset = matching(layout)
    return f"{preset.name if preset else layout.entry.name} {print_mesh(layout.mesh_shape)}"
