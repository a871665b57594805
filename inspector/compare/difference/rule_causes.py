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
from inspector.core.rules.rule import rule_text
from inspector.core.rules.written import recorded
from inspector.core.snapshot import Array, Mesh, Snapshot
from inspector.model.built_in.catalogue import semantics

REORDERED = Cause("rules", "reordered")
UNUSED = Cause("rules", "that nnx does not use changed")

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
    reader: Cause | None = None
    others: tuple[Cause, ...] = ()

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> RuleCauses:
        old, new = recorded(before), recorded(after)
        readers = semantics(before), semantics(after)
        if old is None or new is None:
            return cls(old, new, readers, {})
        reader = None
        if readers[0] != readers[1]:
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
        return cls(old, new, readers, changes, reader, others)

    @property
    def every(self) -> tuple[Cause, ...]:
        """All causes, whether an array differs because of them or not."""
        reader = (self.reader,) if self.reader else ()
        return (*self.changes.values(), *reader, *self.others)

    def without_axes(self, mesh: Mesh | None) -> dict[Cause, tuple[str, ...]]:
        """Return the removed rules whose mesh axes are all missing in this mesh, with these axes."""
        axes = {rule_text(rule): rule[1] for rule in self.before or ()}
        removed = {
            cause: axes.get(cause.before or "", ())
            for cause in self.changes.values()
            if cause.after is None
        }
        left = mesh.axis_names if mesh else ()
        return {c: named for c, named in removed.items() if named and not set(named) & set(left)}

    def of(self, dimension: int, before: Array, after: Array) -> tuple[Cause, ...]:
        """Return the changes of rules that split a dimension with a logical axis differently."""

        def axes(rules: _Rules | None, reader: RulesSemantics) -> tuple[str, ...] | None:
            return _axes(dimension, after, rules or (), reader)

        first, second = self.readers
        new = axes(self.after, second)
        if self.reader and axes(self.after, first) != new:
            found = (self.reader,)
            if axes(self.before, second) == new:
                return found
        else:
            found = ()
        name = (after.logical_axes or ())[dimension]
        own = None if name is None else self._of_name(name, before, after)
        return (*found, own) if own else found

    def would_split(self, dimension: int, array: Array, mesh: Mesh) -> tuple[str, ...] | None:
        """Return the axes larger than 1 that the first layout's rules would use on another mesh.

        Return None if the rules are unknown, or if Flax rejects them for this array.
        """
        if self.before is None or not self.every:
            return None
        sizes = {axis.name: axis.size for axis in mesh.axes}
        rules = tuple((name, tuple(a for a in axes if a in sizes)) for name, axes in self.before)
        axes = _axes(dimension, array, rules, self.readers[0])
        return None if axes is None else tuple(axis for axis in axes if sizes.get(axis, 1) > 1)

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
    dimension: int, array: Array, rules: _Rules, reader: RulesSemantics
) -> tuple[str, ...] | None:
    """Return the mesh axes that rules give a dimension, or None if Linen rejects the array."""
    semantics_of = nnx if reader == "nnx" else linen
    try:
        return semantics_of.partition_spec(array.logical_axes or (), rules)[dimension] or ()
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
