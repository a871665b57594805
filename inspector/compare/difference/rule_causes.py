"""Find the change of the rules that shards a dimension differently.

Flax Linen takes the first rule whose mesh axes are free, so the rule of another logical axis, or the order,
can be the cause. Flax nnx takes the last rule of a name and ignores the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.compare.difference.cause import Cause
from inspector.compare.splits import axes_of
from inspector.core.rules import Rule, RulesSemantics, linen, nnx
from inspector.core.rules.rule import rule_text
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Array, Mesh, Snapshot
from inspector.model.built_in.catalogue import semantics

REORDERED = Cause("rules", "reordered")
UNUSED = Cause("rules", "that nnx does not use")

_Rules = tuple[Rule, ...]
_READERS: dict[RulesSemantics, str] = {"linen": "Flax Linen", "nnx": "Flax nnx"}


@dataclass(frozen=True)
class RuleCauses:
    """The rules of two layouts, and how each model reads them.

    changes: the change of each logical axis. reader: the second model reads rules differently.
    others: changes of the list that change no single rule.
    """

    before: _Rules | None
    after: _Rules | None
    readers: tuple[RulesSemantics, RulesSemantics]
    changes: dict[str, Cause]
    reader: tuple[Cause, ...] = ()
    others: tuple[Cause, ...] = ()

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> RuleCauses:
        old, new = recorded(before), recorded(after)
        readers = semantics(before), semantics(after)
        if old is None or new is None:
            return cls(old, new, readers, {})
        reader = Cause("rule reader", "", *(_READERS[one] for one in readers))
        if readers == ("nnx", "nnx"):
            changes = _changes(tuple(dict(old).items()), tuple(dict(new).items()))
            for name, cause in changes.items():
                if cause.after is None:
                    meaning = f"no rule, so nnx reads {name} as a mesh axis"
                    changes[name] = replace(cause, after=meaning)
        else:
            changes = _changes(old, new)
        other = REORDERED if sorted(old) == sorted(new) else UNUSED
        others = () if changes or old == new else (other,)
        return cls(old, new, readers, changes, (reader,) * (readers[0] != readers[1]), others)

    @property
    def every(self) -> tuple[Cause, ...]:
        """All causes, whether an array differs because of them or not."""
        return (*self.changes.values(), *self.reader, *self.others)

    def without_axes(self, mesh: Mesh | None) -> dict[Cause, tuple[str, ...]]:
        """Return the removed rules whose mesh axes are all missing in this mesh, with these axes."""
        left = mesh.sizes if mesh else {}
        return {
            Cause("rule", "", rule_text(rule), None): rule[1]
            for rule in self.before or ()
            if rule[1] and not left.keys() & set(rule[1])
        }

    def of(self, dimension: int, before: Array, after: Array) -> tuple[Cause, ...]:
        """Return the changes of rules that split a dimension differently, if it has a logical axis."""
        names = after.logical_axes or ()
        name = names[dimension] if dimension < len(names) else None
        if name is None:
            return ()
        first, second = self.readers
        new = _axes(dimension, after, self.after, second)
        causes: tuple[Cause, ...] = ()
        if self.reader and _axes(dimension, after, self.after, first) != new:
            causes = self.reader
            if _axes(dimension, after, self.before, second) == new:
                return causes
        own = self._of_name(name, before, after)
        return (*causes, own) if own else causes

    def would_differ(self, dimension: int, array: Array, mesh: Mesh | None) -> bool:
        """Return whether the first layout's rules would split a dimension differently on this mesh.

        Axes of size 1 do not count. Return False if this is unknown, or if Flax rejects the rules.
        """
        if self.before is None or not self.every or mesh is None:
            return False
        if array.spec is None or array.logical_axes is None:
            return False
        sizes = mesh.sizes
        rules = tuple((name, tuple(a for a in axes if a in sizes)) for name, axes in self.before)
        expected = _axes(dimension, array, rules, self.readers[0])
        both = (
            [axis for axis in axes if sizes.get(axis, 1) > 1]
            for axes in (expected or (), axes_of(array, dimension))
        )
        return expected is not None and next(both) != next(both)

    def _of_name(self, name: str, before: Array, after: Array) -> Cause | None:
        """Return the change of this name's rules, or else of the rules that take its mesh axes."""
        if name in self.changes:
            return self.changes[name]
        if REORDERED in self.others and "linen" in self.readers:
            return REORDERED
        sides = ((after, self.after, self.readers[1]), (before, self.before, self.readers[0]))
        for array, rules, reader in sides:
            for other in _competitors(name, array, rules or ()) if reader == "linen" else ():
                if other in self.changes:
                    return self.changes[other]
        return None


def _changes(before: _Rules, after: _Rules) -> dict[str, Cause]:
    changes = {}
    for name in dict.fromkeys(rule[0] for rule in (*before, *after)):
        old, new = ([rule for rule in rules if rule[0] == name] for rules in (before, after))
        if old == new:
            continue
        gone, added = Counter(old) - Counter(new), Counter(new) - Counter(old)
        if not gone and not added:  # the rules of one name in another order
            gone, added = Counter(old), Counter(new)
        texts = (", ".join(map(rule_text, one.elements())) or None for one in (gone, added))
        changes[name] = Cause("rule", "", *texts)
    return changes


def _axes(
    dimension: int, array: Array, rules: _Rules | None, reader: RulesSemantics
) -> tuple[str, ...] | None:
    """Return the mesh axes that rules give a dimension, or None if Linen rejects the array."""
    partition_spec = {"linen": linen, "nnx": nnx}[reader].partition_spec
    try:
        return partition_spec(array.logical_axes or (), rules or ())[dimension] or ()
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
