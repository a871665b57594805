"""Which change of the rules made a dimension split differently.

Flax Linen takes the first rule whose mesh axes are free, so the rule of another logical axis, or the order,
can be the cause. Flax nnx takes the last rule of a name and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.compare.difference.cause import Cause
from inspector.core.rules import Rule, RulesSemantics, linen, nnx
from inspector.core.rules.sentences import rule_text
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Array, Mesh, Snapshot
from inspector.models.catalogue import semantics

REORDERED = Cause("rules", "reordered")
UNUSED = Cause("rules", "that nnx does not use changed")

_Rules = tuple[Rule, ...]


@dataclass(frozen=True)
class RuleCauses:
    """The rules of two layouts, and how each model reads them.

    changes: the change of each logical axis. others: changes of the list that change no single rule.
    """

    before: _Rules | None
    after: _Rules | None
    readers: tuple[RulesSemantics, RulesSemantics]
    changes: dict[str, Cause]
    others: tuple[Cause, ...]

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> RuleCauses:
        old, new = recorded(before), recorded(after)
        readers = semantics(before), semantics(after)
        if old is None or new is None:
            return cls(old, new, readers, {}, ())
        others = []
        if readers[0] != readers[1]:
            others.append(Cause("rule reader", "", *(f"Flax {_NAMES[one]}" for one in readers)))
        if readers == ("nnx", "nnx"):
            changes = _changes(tuple(dict(old).items()), tuple(dict(new).items()))
            for name, cause in changes.items():
                if cause.after is None:
                    meaning = f"no rule, so nnx reads {name} as a mesh axis"
                    changes[name] = replace(cause, after=meaning)
        else:
            changes = _changes(old, new)
        if not changes and old != new:
            others.append(REORDERED if sorted(old) == sorted(new) else UNUSED)
        return cls(old, new, readers, changes, tuple(others))

    @property
    def every(self) -> tuple[Cause, ...]:
        """All causes, whether an array differs because of them or not."""
        return (*self.changes.values(), *self.others)

    @property
    def reader(self) -> Cause | None:
        """The cause that the second model reads rules differently; None if it does not."""
        return next((cause for cause in self.others if cause.kind == "rule reader"), None)

    def without_axes(self, mesh: Mesh | None) -> dict[Cause, tuple[str, ...]]:
        """Return the removed rules whose mesh axes are all missing in this mesh, with these axes."""
        axes = {rule_text(rule): rule[1] for rule in self.before or ()}
        left = set(mesh.axis_names) if mesh else set()
        return {
            cause: named
            for cause in self.changes.values()
            if cause.after is None
            and (named := axes.get(cause.before or ""))
            and not left & set(named)
        }

    def of(self, dimension: int, before: Array, after: Array) -> tuple[Cause, ...]:
        """Return the changes of rules that split a dimension with a logical axis differently."""
        name = (after.logical_axes or ())[dimension]
        found: list[Cause | None] = []
        if self.reader and self._differ(dimension, after, (self.after, self.after), self.readers):
            found.append(self.reader)
            readers = (self.readers[1], self.readers[1])
            if not self._differ(dimension, after, (self.before, self.after), readers):
                name = None
        found.append(self._of_name(name, before, after))
        return tuple(cause for cause in found if cause)

    def would_split(self, dimension: int, array: Array, mesh: Mesh) -> tuple[str, ...] | None:
        """Return the axes larger than 1 that the first layout's rules would use on another mesh.

        Return None if the rules are unknown, or if Flax rejects them for this array.
        """
        if self.before is None or not (self.changes or self.others):
            return None
        known = tuple(
            (name, tuple(axis for axis in axes if axis in mesh.axis_names))
            for name, axes in self.before
        )
        axes = _axes(dimension, array, known, self.readers[0])
        larger = {axis.name for axis in mesh.axes if axis.size > 1}
        return None if axes is None else tuple(axis for axis in axes if axis in larger)

    def _of_name(self, name: str | None, before: Array, after: Array) -> Cause | None:
        """Return the change of this name's rules, or else of the rules that take its mesh axes."""
        if name is None:
            return None
        if name in self.changes:
            return self.changes[name]
        if REORDERED in self.others and "linen" in self.readers:
            return REORDERED
        sides = (
            (after, self.after, self.readers[1]),
            (before, self.before, self.readers[0]),
        )
        for array, rules, reader in sides:
            for other in _competitors(name, array, rules or ()) if reader == "linen" else ():
                if other in self.changes:
                    return self.changes[other]
        return None

    def _differ(
        self,
        dimension: int,
        array: Array,
        rules: tuple[_Rules | None, _Rules | None],
        readers: tuple[RulesSemantics, RulesSemantics],
    ) -> bool:
        was, now = (
            _axes(dimension, array, one or (), reader)
            for one, reader in zip(rules, readers, strict=True)
        )
        return was != now


_NAMES: dict[RulesSemantics, str] = {"linen": "Linen", "nnx": "nnx"}


def _changes(before: _Rules, after: _Rules) -> dict[str, Cause]:
    changes = {}
    for name in dict.fromkeys(rule[0] for rule in (*before, *after)):
        old = [rule for rule in before if rule[0] == name]
        new = [rule for rule in after if rule[0] == name]
        if old == new:
            continue
        gone, added = Counter(old) - Counter(new), Counter(new) - Counter(old)
        if not gone and not added:  # the rules of one name in another order
            gone, added = Counter(old), Counter(new)
        changes[name] = Cause("rule", "", _texts(gone), _texts(added))
    return changes


def _texts(rules: Counter[Rule]) -> str | None:
    return ", ".join(map(rule_text, rules.elements())) or None


def _axes(
    dimension: int, array: Array, rules: _Rules, reader: RulesSemantics
) -> tuple[str, ...] | None:
    """Return the mesh axes that rules give a dimension, or None if Linen rejects the array."""
    names = array.logical_axes or ()
    try:
        return (nnx if reader == "nnx" else linen).partition_spec(names, rules)[dimension] or ()
    except ValueError:
        return None


def _competitors(name: str, array: Array, rules: _Rules) -> Iterator[str]:
    """Yield the logical axes that took a mesh axis before a rule of `name` could."""
    names = array.logical_axes or ()
    try:
        trials = linen.ledger(names, rules)
    except ValueError:
        return
    for trial in trials:
        if names[trial.dimension] == name and trial.busy_rule is not None:
            yield rules[trial.busy_rule][0]
