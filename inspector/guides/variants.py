"""Two forms of one model: device axes or logical axes, a loop or a scan."""

from dataclasses import dataclass, replace

from inspector.layout import Layout, specs_from_rules
from inspector.model.built_in.catalogue import CATALOGUE
from inspector.sharding.totals import STATE_GROUPS

LOGICAL, DEVICE = "logical_mlp", "mlp"
# The arrays that are compared and listed.
GROUPS = (*STATE_GROUPS, "batch", "output")


@dataclass(frozen=True)
class Variants:
    """Two layouts of one model with their titles."""

    left_title: str
    left: Layout
    right_title: str
    right: Layout


def has_device_axes(layout: Layout) -> bool:
    """Return whether the model exists with logical and with device axes. Biases exist with the first."""
    return layout.model in (LOGICAL, DEVICE) and not layout.sizes.get("bias")


def has_scan(layout: Layout) -> bool:
    """Return whether the layout's model can scan its layers."""
    return layout.entry.size("scan") is not None


def logical_and_device_axes(layout: Layout) -> Variants:
    """Return a layout with rules, and one with PartitionSpecs at the arrays, on the same mesh.

    For a layout with rules, the specs follow from the rules. For a layout with specs, the rules are those of
    the model whose mesh axes exist, so they can make other specs.
    """
    if layout.entry.has_rules:
        entry = CATALOGUE[DEVICE]
        sizes = {size.name: layout.sizes[size.name] for size in entry.sizes}
        specs = specs_from_rules(entry, layout.rules)
        device = replace(layout, model=DEVICE, rules=(), specs=specs, sizes=sizes)
        return Variants("Logical axes, by rules", layout, "Device axes, at the arrays", device)
    entry = CATALOGUE[LOGICAL]
    rules = tuple(rule for rule in entry.rules if set(rule[1]) <= set(layout.axis_names))
    logical = replace(layout, model=LOGICAL, rules=rules, specs={}, sizes={**layout.sizes, "bias": False})
    return Variants("Logical axes, by rules", logical, "Device axes, at the arrays", layout)


def loop_and_scan(layout: Layout) -> Variants:
    """Return a layout with a Python loop over blocks, and one with a scan."""
    loop = replace(layout, sizes={**layout.sizes, "scan": False})
    scan = replace(layout, sizes={**layout.sizes, "scan": True})
    return Variants("Python loop", loop, "nn.scan", scan)
