"""Which changes of a layout made an array differ: the mesh, a rule, a size or another field.

With both layouts known, causes are read from them. For checkpoints and goldens only the mesh is known.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from inspector.compare import origin
from inspector.compare.difference.array_differences import ArrayDifference
from inspector.compare.splits import axes_of, axes_text, larger_axes
from inspector.model.built_in.catalogue import semantics
from inspector.records.snapshot import Array, Mesh, Program, Snapshot
from inspector.sharding.rules import Rule, RulesSemantics, linen, nnx
from inspector.sharding.rules.rule import rule_text
from inspector.sharding.rules.written import recorded
from inspector.text.formatting import counted, devices_text

# Find the change of the rules that shards a dimension differently.
#
# Flax Linen takes the first rule whose mesh axes are free, so the rule of another logical axis, or the order,
# can be the cause. Flax nnx takes the last rule of a name and ignores the others.


# In display order.
Kind = Literal[
    "model", "size", "mesh axis name", "mesh", "device order", "device ids", "mesh axes of size 1",
    "mesh axis order", "axis type", "rule", "rule reader", "rules", "PartitionSpec",
    "sharding constraint", "field",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Cause:
    """What changed, with its values as text.

    name: the entry that changed, if the kind does not say it all. before, after: None if absent.
    """

    kind: Kind
    name: str
    before: str | None = None
    after: str | None = None

    @property
    def text(self) -> str:
        """The change as a phrase: `dtype float32 → bfloat16`, `rule embed → data added`."""
        label = "" if self.kind in ("size", "field") else self.kind
        words: list[str]
        match self.before, self.after:
            case None, None:
                words = [self.name]
            case None, str(after):
                words = [self.name or after, "added"]
            case str(before), None:
                words = [self.name or before, "removed"]
            case str(before), str(after):
                words = [self.name, before, "changed to" if label == "rule" else "→", after]
        return " ".join(filter(None, (label, *words)))


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
            changes = _rule_changes(tuple(dict(old).items()), tuple(dict(new).items()))
            for name, cause in changes.items():
                if cause.after is None:
                    meaning = f"no rule, so nnx reads {name} as a mesh axis"
                    changes[name] = replace(cause, after=meaning)
        else:
            changes = _rule_changes(old, new)
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


def _rule_changes(before: _Rules, after: _Rules) -> dict[str, Cause]:
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


_SPLIT_FACTS = {"spec", "placement", "bytes per device", "replicas"}
# Layout fields that have other causes, or that the mesh shows.
_OWN_CAUSES = (
    *("model", "sizes", "mesh", "axes", "rules", "specs", "unconstrained", "donate"),
    *("device_order", "target"),
)
# The value of an entry that a layout lacks. Entries of other kinds are compared if both have them.
_ABSENT: dict[Kind, str] = {"size": "unset", "sharding constraint": "on", "field": "none"}
_MOST_NAMES = 3


@dataclass(frozen=True)
class Causes:
    """All changes between two Snapshots whose mesh axes have the same names (see `renamed_axes`).

    every: all causes in display order, whether an array differs because of them or not.
    """

    before: Snapshot
    after: Snapshot
    every: tuple[Cause, ...]
    rules: RuleCauses

    def of_kind(self, *kinds: Kind) -> tuple[Cause, ...]:
        return tuple(cause for cause in self.every if cause.kind in kinds)

    @property
    def mesh(self) -> tuple[Cause, ...]:
        return self.of_kind(*KINDS[KINDS.index("mesh") : KINDS.index("axis type") + 1])

    @property
    def moves(self) -> bool:
        """Whether the mesh alone can place an array differently."""
        return bool(self.of_kind("mesh", "device order"))

    def of(self, difference: ArrayDifference) -> tuple[Cause, ...]:
        """Return why this array differs. The result is empty if no cause is known."""
        found = set(self._of(difference))
        return tuple(cause for cause in self.every if cause in found)

    def _of(self, difference: ArrayDifference) -> Iterator[Cause]:
        sizes, model = self.of_kind("size"), self.of_kind("model")
        structure = model or [cause for cause in sizes if cause.name not in ("dtype", "optimizer")]
        before, after = difference.before, difference.after
        if before is None or after is None:
            optimizer = [cause for cause in sizes if cause.name == "optimizer"]
            is_moment = difference.either.group == "opt_state" and not model
            yield from (is_moment and optimizer) or structure
            return
        if "shape" in difference.changed:
            yield from structure
        dtype = ("dtype", before.dtype, after.dtype)
        yield from (c for c in sizes if (c.name, c.before, c.after) == dtype)
        if not _SPLIT_FACTS & set(difference.changed):
            return
        dimensions = list(difference.split_dimensions())
        for dimension in dimensions:
            yield from self._of_dimension(dimension, before, after)
        if not dimensions and self.moves and {"placement", "replicas"} & set(difference.changed):
            yield from self.mesh

    def _of_dimension(self, dimension: int, before: Array, after: Array) -> Iterator[Cause]:
        rules = self.rules.of(dimension, before, after)
        if self.mesh and self._mesh_explains(dimension, before, after):
            if not self.rules.would_differ(dimension, after, self.after.mesh):
                rules = ()
            yield from rules
            if self.moves or not rules:
                yield from self.mesh
        else:
            activation = after.group == "activation"
            yield from rules or self.of_kind("sharding constraint" if activation else "PartitionSpec")

    def _mesh_explains(self, dimension: int, before: Array, after: Array) -> bool:
        """Return whether both specs agree on all axes that exist in both meshes."""
        old, new = self.before.mesh, self.after.mesh
        if before.spec is None or after.spec is None or old is None or new is None:
            return False
        # An axis of size 1 in both meshes splits nothing in either.
        larger = {name for name, _ in (*larger_axes(old), *larger_axes(new))}
        common = larger & old.sizes.keys() & new.sizes.keys()
        was, now = (
            [name for name in axes_of(array, dimension) if name in common] for array in (before, after)
        )
        return was == now


def causes(before: Snapshot, after: Snapshot) -> Causes:
    """Return all changes between two Snapshots."""
    # With several meshes, an axis of the same name can be one of another mesh.
    several = before.other_meshes or after.other_meshes
    names = {} if several else _renames(before.mesh, after.mesh)
    before = renamed_axes(before, names)
    rules = RuleCauses.between(before, after)
    old, new = _entries(before), _entries(after)
    every = [
        *(cause for kind in old if kind in new for cause in _changes(kind, old[kind], new[kind])),
        *(Cause("mesh axis name", "", was, now) for was, now in names.items()),
        *_mesh_causes(before.mesh, after.mesh),
        *rules.every,
    ]
    every.sort(key=lambda cause: KINDS.index(cause.kind))
    return Causes(before, after, tuple(every), rules)


def renamed_axes(snapshot: Snapshot, names: Mapping[str, str]) -> Snapshot:
    """Return the Snapshot with mesh axes renamed in its mesh, layout, specs and collectives."""
    mesh = snapshot.mesh
    if not names or mesh is None:
        return snapshot

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(renamed, value))
        return names.get(value, value) if isinstance(value, str) else value

    layout = dict(snapshot.layout or {})
    if isinstance(rules := layout.get("rules"), list):
        pairs = (rule if isinstance(rule, list) else [rule] for rule in rules)
        layout["rules"] = [[*rule[:1], *renamed(rule[1:])] for rule in pairs]
    if isinstance(specs := layout.get("specs"), dict):
        layout["specs"] = renamed(specs)
    if isinstance(rows := layout.get("state_specs"), list):
        layout["state_specs"] = [_renamed_row(row, names, renamed) for row in rows]
    if "optimizer_axes" in layout:
        layout["optimizer_axes"] = renamed(layout["optimizer_axes"])

    def program_renamed(program: Program) -> Program:
        collectives = program.collectives
        if collectives is not None:
            collectives = tuple(
                replace(collective, mesh_axes=renamed(collective.mesh_axes)) for collective in collectives
            )
        return replace(program, collectives=collectives)

    axes = tuple(replace(axis, name=renamed(axis.name)) for axis in mesh.axes)
    return replace(
        snapshot,
        layout=snapshot.layout and layout,
        mesh=replace(mesh, axes=axes),
        arrays=tuple(replace(array, spec=renamed(array.spec)) for array in snapshot.arrays),
        programs=tuple(map(program_renamed, snapshot.programs)),
        partitioned=snapshot.partitioned and tuple(map(program_renamed, snapshot.partitioned)),
    )


def _renamed_row(row: Any, names: Mapping[str, str], renamed: Callable[[Any], Any]) -> Any:
    """Return a row of `state_specs` with other names in its PartitionSpec or its `fsdp(axes, bytes)`."""
    if not isinstance(row, list) or len(row) != 2:
        return row
    pattern, spec = row
    if not isinstance(spec, str):
        return [pattern, renamed(spec)]
    function, _, arguments = spec.partition("(")
    words = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), arguments)
    return [pattern, f"{function}({words}"]


def _renames(before: Mesh | None, after: Mesh | None) -> dict[str, str]:
    """Return the axes that only have another name. Both meshes must have the same shape."""
    if before is None or after is None:
        return {}
    whole = [tuple(mesh.sizes.items()) for mesh in (before, after)]
    for was, now in (whole, (larger_axes(before), larger_axes(after))):
        if [size for _, size in was] == [size for _, size in now]:
            pairs = zip(was, now, strict=True)
            names = {old: new for (old, _), (new, _) in pairs if old != new}
            if not (names.keys() & after.sizes) and not ({*names.values()} & before.sizes.keys()):
                return names
    return {}


def _mesh_causes(before: Mesh | None, after: Mesh | None) -> Iterator[Cause]:
    if before is None or after is None:
        return
    meshes = before, after
    if larger_axes(before) != larger_axes(after):
        texts = [axes_text(larger_axes(mesh), "1 device") for mesh in meshes]
        if before.size != after.size:
            texts[1] += f" ({before.size:,} → {counted(after.size, 'device')})"
        yield Cause("mesh", "", *texts)
    elif before.devices != after.devices:
        kind: Kind = "device order" if {*before.devices} == {*after.devices} else "device ids"
        yield Cause(kind, "", *(devices_text(mesh.devices) for mesh in meshes))
    else:
        old, new = before.axis_names, after.axis_names
        gone = [name for name in old if name not in new]
        added = [name for name in new if name not in old]
        if gone:
            yield Cause("mesh axes of size 1", _short(gone), "1", None)
        if added:
            yield Cause("mesh axes of size 1", _short(added), None, "1")
        if not gone and not added and old != new:
            yield Cause("mesh axis order", "", ", ".join(old), ", ".join(new))
        types = ({axis.name: axis.type for axis in mesh.axes} for mesh in meshes)
        yield from _changes("axis type", *types)


# The values of one kind by name; None if the layout does not record them.
_Entries = Mapping[str, str | None] | None


def _entries(snapshot: Snapshot) -> dict[Kind, _Entries]:
    """Return the entries of a layout by kind of cause; empty without a layout."""
    layout = snapshot.layout
    if layout is None:
        return {}
    model, specs, off = origin.model(snapshot), layout.get("specs"), layout.get("unconstrained")
    off = off if isinstance(off, list) else []
    fields = {name: value for name, value in layout.items() if name not in _OWN_CAUSES}
    return {
        "model": None if model is None else {"": model},
        "size": origin.sizes(snapshot),
        "PartitionSpec": _texts(specs) if isinstance(specs, dict) else None,
        "sharding constraint": dict.fromkeys(f"on {name}" for name in off),
        "field": _texts({"donation": bool(layout.get("donate"))} | fields),
    }


def _changes(kind: Kind, old: _Entries, new: _Entries) -> Iterator[Cause]:
    """Yield a cause for each entry that differs."""
    if old is None or new is None:
        return
    absent = _ABSENT.get(kind)
    for name in {**old, **new} if absent else [name for name in old if name in new]:
        was, now = old.get(name, absent), new.get(name, absent)
        if was != now:
            yield Cause(kind, name, was, now)


def _texts(entries: Mapping[Any, Any]) -> dict[str, str]:
    def text(value: Any) -> str:
        if value is None or isinstance(value, bool):
            return "none" if value is None else "on" if value else "off"
        return value if isinstance(value, str) else json.dumps(value)

    return {str(name): text(value) for name, value in entries.items()}


def _short(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
