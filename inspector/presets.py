"""Ready layouts that people start from: axis names and rules for a number of devices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from inspector.layout import Layout, specs_from_rules
from inspector.rules import Rule


@dataclass(frozen=True)
class Preset:
    """A way to lay out a model: which mesh axes there are, and what they split."""

    name: str
    meaning: str
    axis_names: tuple[str, ...]
    rules: tuple[Rule, ...]

    def applied_to(self, layout: Layout) -> Layout:
        """The layout with this preset's mesh and rules, on as many devices as it has now."""
        shape = mesh_shape(layout.devices, len(self.axis_names))
        if layout.entry.has_rules:
            return replace(layout, mesh_shape=shape, axis_names=self.axis_names, rules=self.rules)
        specs = specs_from_rules(layout.entry, self.rules)
        return replace(layout, mesh_shape=shape, axis_names=self.axis_names, specs=specs)

    def describes(self, layout: Layout) -> bool:
        """Whether the layout is this preset on some mesh of the right rank."""
        if layout.axis_names != self.axis_names:
            return False
        if layout.entry.has_rules:
            return layout.rules == self.rules
        return layout.specs == specs_from_rules(layout.entry, self.rules)


PRESETS = (
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


def matching(layout: Layout) -> Preset | None:
    """The preset that the layout is, if it is one."""
    return next((preset for preset in PRESETS if preset.describes(layout)), None)


def mesh_shape(devices: int, axes: int) -> tuple[int, ...]:
    """`devices` on one axis, or on two as nearly square as they go, the smaller first."""
    if axes == 1:
        return (devices,)
    first = next(size for size in range(math.isqrt(devices), 0, -1) if devices % size == 0)
    return (first, devices // first)
