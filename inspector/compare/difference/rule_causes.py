"""What of two layouts' rules made a dimension lie otherwise, as each of the two models reads its rules.

To Flax Linen the first rule whose mesh axes are free decides, so that another name's rule or the order may be
the cause. To nnx the last rule for a name decides, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inspector.compare.difference.layout_change import LayoutChange, rule_text
from inspector.core.rules import Rule, linen, nnx
from inspector.core.snapshot import Array, Mesh
from inspector.model import RulesSemantics

REORDERED = "The same rules stand in another order"

_READERS: dict[RulesSemantics, str] = {"linen": "Flax Linen", "nnx": "Flax nnx"}


@dataclass(frozen=True)
class RuleCauses:
    """The rules of two layouts, and how each of them is read."""

    layout: LayoutChange
    readings: tuple[RulesSemantics, RulesSemantics] = ("linen", "linen")

    @property
    def every(self) -> tuple[str, ...]:
        """Every clause, whether an array follows from it or not."""
        named = (self._clause(name) for name in self.layout.rules)
        return (*named, REORDERED if self.layout.reordered else "", self.reading)

    @property
    def reading(self) -> str:
        """That the same rules mean something else to the second model; empty if they do not."""
        before, after = self.readings
        if before == after or self.layout.before_rules is None or self.layout.after_rules is None:
            return ""
        return f"Rules are read as {_READERS[after]} reads them, no longer as {_READERS[before]}"

    def of(self, dimension: int, before: Array, after: Array) -> tuple[str, ...]:
        """The clauses for a dimension with a logical axis that is split otherwise; empty if none is known."""
        name = (after.logical_axes or ())[dimension]
        if self._is_read_otherwise(dimension, after):
            clauses = (
                self.reading,
                self._of_name(name, before, after) if self._acts(dimension, after) else "",
            )
        else:
            clauses = (self._of_name(name, before, after),)
        return tuple(clause for clause in clauses if clause)

    def would_split(self, dimension: int, array: Array, mesh: Mesh) -> tuple[str, ...] | None:
        """The mesh axes that the first layout's rules would give a dimension on another mesh.

        Axes which that mesh lacks or has in size 1 left out; None where the rules are not known, or refused.
        """
        if self.layout.before_rules is None:
            return None
        split = {axis.name for axis in mesh.axes if axis.size > 1}
        old = tuple(
            (name, tuple(axis for axis in to if axis in mesh.axis_names))
            for name, to in self.layout.before_rules
        )
        would = _axes(dimension, array, old, self.readings[0])
        return None if would is None else tuple(axis for axis in would if axis in split)

    def _of_name(self, name: str | None, before: Array, after: Array) -> str:
        """The rule of this logical axis that changed, or that of another one, which stands in its way."""
        layout = self.layout
        if name is None:
            return ""
        if name in layout.rules and self._decides(name):
            return self._clause(name)
        if layout.reordered and "linen" in self.readings:
            return REORDERED
        sides = (
            (after, layout.after_rules, self.readings[1]),
            (before, layout.before_rules, self.readings[0]),
        )
        for array, rules, reading in sides:
            for other in _in_its_way(name, array, rules or ()) if reading == "linen" else ():
                if other in layout.rules:
                    return self._clause(other)
        return ""

    def _decides(self, name: str) -> bool:
        """Whether the change of a name's rules can change where it goes: to nnx only that of the last."""
        if "linen" in self.readings:
            return True
        before, after = self._last(name)
        return before != after

    def _last(self, name: str) -> tuple[Rule | None, Rule | None]:
        before, after = (
            next((rule for rule in reversed(rules or ()) if rule[0] == name), None)
            for rules in (self.layout.before_rules, self.layout.after_rules)
        )
        return before, after

    def _clause(self, name: str) -> str:
        """What happened to the rules of a name, and what nnx makes of it."""
        change = self.layout.rules[name]
        said = f"{change.clause[:1].upper()}{change.clause[1:]}"
        if self.readings != ("nnx", "nnx"):
            return said
        before, after = self._last(name)
        if after is None:
            return f"{said}, so that nnx takes {name} for a mesh axis"
        if before == after:
            return f"{said}, but nnx takes the last of {name} as before, {rule_text(after)}"
        count = max(
            sum(rule[0] == name for rule in rules or ())
            for rules in (self.layout.before_rules, self.layout.after_rules)
        )
        if count > 1 and before is not None:
            return (
                f"The last rule of {name}, which nnx takes, is {rule_text(after)} in place of "
                f"{rule_text(before)}"
            )
        return said

    def _is_read_otherwise(self, dimension: int, array: Array) -> bool:
        """Whether the second layout's rules mean something else for a dimension, read the other way."""
        if not self.reading:
            return False
        rules = self.layout.after_rules or ()
        was, becomes = (_axes(dimension, array, rules, reading) for reading in self.readings)
        return was != becomes

    def _acts(self, dimension: int, array: Array) -> bool:
        """Whether the rules of the first layout, read the new way, give a dimension other axes."""
        was, becomes = (
            _axes(dimension, array, rules or (), self.readings[1])
            for rules in (self.layout.before_rules, self.layout.after_rules)
        )
        return was != becomes


def _axes(
    dimension: int, array: Array, rules: tuple[Rule, ...], reading: RulesSemantics
) -> tuple[str, ...] | None:
    """The mesh axes that rules give a dimension; None where Linen refuses the array."""
    names = array.logical_axes or ()
    if reading == "nnx":
        return nnx.partition_spec(names, rules)[dimension] or ()
    try:
        return linen.partition_spec(names, rules)[dimension] or ()
    except ValueError:
        return None


def _in_its_way(name: str, array: Array, rules: tuple[Rule, ...]) -> Iterator[str]:
    """The logical axes that took a mesh axis which a rule of this one wanted, as Linen reads the rules."""
    names = array.logical_axes or ()
    try:
        trials = linen.ledger(names, rules)
    except ValueError:
        return
    for trial in trials:
        if names[trial.dimension] == name and trial.busy_rule is not None:
            yield rules[trial.busy_rule][0]
