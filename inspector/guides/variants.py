"""Two forms of one model, and their leaves: device axes or logical axes, a loop or a scan."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inspector.core import sharding
from inspector.core.snapshot import Array, Snapshot
from inspector.layout import Layout, specs_from_rules
from inspector.model.built_in.catalogue import CATALOGUE

LOGICAL, DEVICE = "logical_mlp", "mlp"


@dataclass(frozen=True)
class Variants:
    """Two layouts of one model with their titles."""

    left_title: str
    left: Layout
    right_title: str
    right: Layout


def logical_and_device_axes(layout: Layout) -> Variants:
    """Return a layout with rules, and one with PartitionSpecs at the arrays, on the same mesh.

    For a layout with rules, the specs follow from the rules. For a layout with specs, the rules are those of
    the model whose mesh axes exist, so they can make other specs.
    """
    if layout.entry.has_rules:
        entry = CATALOGUE[DEVICE]
        device = replace(
            layout, model=DEVICE, rules=(), specs=specs_from_rules(entry, layout.rules)
        )
        return Variants("Logical axes, by rules", layout, "Device axes, at the arrays", device)
    entry = CATALOGUE[LOGICAL]
    rules = tuple(rule for rule in entry.rules if set(rule[1]) <= set(layout.axis_names))
    logical = replace(layout, model=LOGICAL, rules=rules, specs={})
    return Variants("Logical axes, by rules", logical, "Device axes, at the arrays", layout)


def loop_and_scan(layout: Layout) -> Variants:
    """Return a layout with a Python loop over blocks, and one with a scan."""
    loop = replace(layout, sizes={**layout.sizes, "scan": False})
    scan = replace(layout, sizes={**layout.sizes, "scan": True})
    return Variants("Python loop", loop, "nn.scan", scan)


@dataclass(frozen=True)
class LeafPair:
    """The arrays at one path. `left` or `right` is None if only the other Snapshot has the path."""

    path: str
    left: Array | None
    right: Array | None
    equal: bool


def leaf_pairs(left: Snapshot, right: Snapshot, groups: tuple[str, ...]) -> tuple[LeafPair, ...]:
    """Return all leaves of these groups in the order of `left`, then the leaves that only `right` has.

    Equal leaves have the same shape and put the same index ranges on the same devices. Their specs can be
    different: `P('data')` and `P('data', None)`, or an axis of size 1.
    """
    others = {array.path: array for array in right.arrays if array.group in groups}
    pairs = []
    for array in left.arrays:
        if array.group in groups:
            other = others.pop(array.path, None)
            equal = other is not None and _equal(array, left, other, right)
            pairs.append(LeafPair(array.path, array, other, equal))
    pairs += [LeafPair(path, None, array, False) for path, array in others.items()]
    return tuple(pairs)


def _equal(array: Array, left: Snapshot, other: Array, right: Snapshot) -> bool:
    if array.shape != other.shape or left.mesh is None or right.mesh is None:
        return False
    if left.mesh.devices != right.mesh.devices:
        return False
    mine, theirs = sharding.place_array(array, left.mesh), sharding.place_array(other, right.mesh)
    if mine is None or theirs is None:
        return False
    return bool((mine.starts == theirs.starts).all() and (mine.stops == theirs.stops).all())
