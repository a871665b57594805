"""What differs between two layouts, field by field, as both Snapshots have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inspector.compare.difference import origin
from inspector.compare.difference.mesh_change import MeshChange
from inspector.core.errors import shown
from inspector.core.rules import Rule
from inspector.core.snapshot import Snapshot

# Sizes that say how a model is trained or what it is made of, not how large it is.
DTYPE, OPTIMIZER = "dtype", "optimizer"
# Fields of the layout of which more is said than that they differ, or that show in the mesh.
_TOLD = (
    *("model", "sizes", "mesh", "axes", "rules", "specs", "unconstrained", "donate"),
    *("device_order", "target"),
)
_MOST_VALUES = 4


@dataclass(frozen=True)
class RuleChange:
    """What happened to the rules of one logical axis: those that are gone, and those that are new."""

    name: str
    gone: tuple[Rule, ...]
    new: tuple[Rule, ...]

    @property
    def clause(self) -> str:
        if self.gone and self.new:
            return f"the rule {_rules_text(self.gone)} is now {_rules_text(self.new)}"
        if self.new:
            return f"the rule {_rules_text(self.new)} is new"
        return f"the rule {_rules_text(self.gone)} is gone"


@dataclass(frozen=True)
class LayoutChange:
    """Two layouts held against each other; what is not known of one of them is no difference.

    rules: None where the rules of one are not known; `before_rules` name axes as the second mesh does.
    sizes: those that differ, (before, after) as text, without `dtype` and `optimizer`, which stand alone.
    aside: other fields that differ, such as the number of measured steps, in words.
    """

    model: tuple[str, str] | None = None
    sizes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    dtype: tuple[str, str] | None = None
    optimizer: tuple[str, str] | None = None
    before_rules: tuple[Rule, ...] | None = None
    after_rules: tuple[Rule, ...] | None = None
    rules: Mapping[str, RuleChange] = field(default_factory=dict)
    reordered: bool = False
    specs: tuple[str, ...] = ()
    unconstrained: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    donate: bool | None = None
    aside: tuple[str, ...] = ()


def layout_change(before: Snapshot, after: Snapshot, mesh: MeshChange) -> LayoutChange:
    """Compare two layouts, whose axes `mesh` may have renamed."""
    old, new = before.layout, after.layout
    if old is None or new is None:
        return LayoutChange()
    models = origin.model(before), origin.model(after)
    sizes = _sizes(origin.sizes(before), origin.sizes(after))
    told = _rules(old.get("rules"), mesh)
    becomes = _rules(new.get("rules"))
    off = tuple(_names(one.get("unconstrained")) for one in (old, new))
    donate = bool(old.get("donate")), bool(new.get("donate"))
    changes = _rule_changes(told, becomes)
    return LayoutChange(
        model=models if None not in models and models[0] != models[1] else None,
        dtype=sizes.pop(DTYPE, None),
        optimizer=sizes.pop(OPTIMIZER, None),
        sizes=sizes,
        before_rules=told,
        after_rules=becomes,
        rules=changes,
        reordered=told is not None and becomes is not None and not changes and told != becomes,
        specs=_specs(old.get("specs"), new.get("specs")),
        unconstrained=off if off[0] != off[1] else None,
        donate=donate[1] if donate[0] != donate[1] else None,
        aside=_aside(old, new),
    )


def sizes_clause(sizes: Mapping[str, tuple[str, str]]) -> str:
    """`The model's depth is 2048 in place of 1024`, `The models differ (depth 2048 in place of 1024, …)`.

    What a layout calls sizes has settings among it, such as the learning rate or the loss.
    """
    said = [f"{name} {new} in place of {old}" for name, (old, new) in sizes.items()]
    if len(said) > _MOST_VALUES:
        left = len(said) - _MOST_VALUES + 1
        said = [*said[: _MOST_VALUES - 1], f"{left} more"]
    if len(sizes) == 1:
        return f"The model's {said[0].replace(' ', ' is ', 1)}"
    return f"The models differ ({', '.join(said)})"


def rule_text(rule: Rule) -> str:
    """`embed → fsdp + tensor`, `embed → none`."""
    return f"{rule[0]} → {' + '.join(rule[1]) or 'none'}"


def _rules_text(rules: tuple[Rule, ...]) -> str:
    return ", ".join(rule_text(rule) for rule in rules)


def _sizes(
    before: dict[str, str] | None, after: dict[str, str] | None
) -> dict[str, tuple[str, str]]:
    if before is None or after is None:
        return {}
    names = [*before, *(name for name in after if name not in before)]
    pairs = {name: (before.get(name, "unset"), after.get(name, "unset")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _rules(plain: Any, mesh: MeshChange | None = None) -> tuple[Rule, ...] | None:
    """The rules of a layout; None where it has none that can be read, as a file may hold anything."""
    if not isinstance(plain, list):
        return None
    found = []
    for entry in plain:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
            return None
        name, axes = entry
        if not isinstance(axes, list) or not all(isinstance(axis, str) for axis in axes):
            return None
        found.append((name, mesh.renamed_axes(tuple(axes)) if mesh else tuple(axes)))
    return tuple(found)


def _rule_changes(
    before: tuple[Rule, ...] | None, after: tuple[Rule, ...] | None
) -> dict[str, RuleChange]:
    if before is None or after is None:
        return {}
    changes = {}
    for name in dict.fromkeys(rule[0] for rule in (*before, *after)):
        old = [rule for rule in before if rule[0] == name]
        new = [rule for rule in after if rule[0] == name]
        gone, come = _without(old, new), _without(new, old)
        if gone or come:
            changes[name] = RuleChange(name, gone, come)
        elif old != new:  # the same rules of one axis, tried in another order
            changes[name] = RuleChange(name, tuple(old), tuple(new))
    return changes


def _without(rules: list[Rule], others: list[Rule]) -> tuple[Rule, ...]:
    left = list(others)
    kept = []
    for rule in rules:
        if rule in left:
            left.remove(rule)
        else:
            kept.append(rule)
    return tuple(kept)


def _specs(before: Any, after: Any) -> tuple[str, ...]:
    """The places of a model with device axes whose specs differ."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ()
    names = dict.fromkeys((*before, *after))
    return tuple(str(name) for name in names if before.get(name) != after.get(name))


def _names(plain: Any) -> tuple[str, ...]:
    return tuple(map(str, plain)) if isinstance(plain, list) else ()


def _aside(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    names = [name for name in {**before, **after} if name not in _TOLD]
    return tuple(
        f"{name} {_plain(after.get(name))} in place of {_plain(before.get(name))}"
        for name in names
        if before.get(name) != after.get(name)
    )


def _plain(value: Any) -> str:
    if value is None or value is False:
        return "none"
    return (
        "on" if value is True else shown(value) if isinstance(value, (dict, list)) else str(value)
    )
