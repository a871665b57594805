"""Which changes of a layout made an array differ: the mesh, a rule, a size or another field.

With both layouts known, causes are read from them. For checkpoints and goldens only the mesh is known.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from inspector.compare.difference import origin
from inspector.compare.difference.array_differences import ONLY_AFTER, ONLY_BEFORE, ArrayDifference
from inspector.compare.difference.cause import Cause
from inspector.compare.difference.rule_causes import RuleCauses
from inspector.core.formatting import counted, devices_text, mesh_sizes_text
from inspector.core.snapshot import Array, Mesh, Snapshot, Spec

_SPLIT_FACTS = {"spec", "placement", "bytes per device", "replicas"}
# Layout fields with causes of their own, or that the mesh shows.
_OWN_CAUSES = (
    *("model", "sizes", "mesh", "axes", "rules", "specs", "unconstrained", "donate"),
    *("device_order", "target"),
)
_MOST_NAMES = 3


@dataclass(frozen=True)
class Causes:
    """All changes between two Snapshots whose mesh axes have the same names (see `renamed_axes`)."""

    before: Snapshot
    after: Snapshot
    renames: tuple[Cause, ...] = ()

    @functools.cached_property
    def every(self) -> tuple[Cause, ...]:
        """All causes, whether an array differs because of them or not."""
        return (
            *(*self.model, *self.sizes, *self.renames, *self.mesh, *self.rules.every),
            *(*self.specs, *self.constraints, *self.fields),
        )

    def of(self, one: ArrayDifference) -> tuple[Cause, ...]:
        """Return why this array differs. The result is empty if no cause is known."""
        found = set(self._of(one))
        return tuple(cause for cause in self.every if cause in found)

    def _of(self, one: ArrayDifference) -> Iterator[Cause]:
        structure = self.model or self._shape_sizes
        if one.changed in ((ONLY_BEFORE,), (ONLY_AFTER,)):
            optimizer = [c for c in self.sizes if c.name == "optimizer"]
            is_moment = one.either.group == "opt_state"
            yield from self.model or (optimizer if is_moment else ()) or self._shape_sizes
            return
        if "shape" in one.changed:
            yield from structure
        before, after = one.before, one.after
        if before is None or after is None:
            return
        yield from (
            cause
            for cause in self.sizes
            if (cause.name, cause.before, cause.after) == ("dtype", before.dtype, after.dtype)
        )
        if not _SPLIT_FACTS & set(one.changed):
            return
        dimensions = list(one.split_dimensions())
        for dimension in dimensions:
            yield from self._of_dimension(dimension, before, after)
        if not dimensions and self.moves and {"placement", "replicas"} & set(one.changed):
            yield from self.mesh

    def _of_dimension(self, dimension: int, before: Array, after: Array) -> Iterator[Cause]:
        names = after.logical_axes or ()
        named = dimension < len(names) and names[dimension] is not None
        if self.mesh and self._mesh_explains(dimension, before, after):
            needs_rules = named and self._needs_new_rules(dimension, after)
            rules = self.rules.of(dimension, before, after) if needs_rules else ()
            yield from rules
            if self.moves or not rules:
                yield from self.mesh
            return
        rules = self.rules.of(dimension, before, after) if named else ()
        yield from rules or (self.constraints if after.group == "activation" else self.specs)

    def _mesh_explains(self, dimension: int, before: Array, after: Array) -> bool:
        """Return whether both specs agree on all axes that exist in both meshes."""
        old, new = self.before.mesh, self.after.mesh
        if before.spec is None or after.spec is None or old is None or new is None:
            return False
        sizes = [{axis.name: axis.size for axis in mesh.axes} for mesh in (old, new)]
        # An axis of size 1 in both meshes splits nothing in either.
        common = {name for name in sizes[0] if max(sizes[0][name], sizes[1].get(name, 0)) > 1}
        common &= sizes[1].keys()
        entries = (
            (spec[dimension] if dimension < len(spec) else None) or ()
            for spec in (before.spec, after.spec)
        )
        was, now = ([name for name in entry if name in common] for entry in entries)
        return was == now

    def _needs_new_rules(self, dimension: int, after: Array) -> bool:
        """Return whether the old rules on the new mesh would give this dimension another split."""
        mesh = self.after.mesh
        if mesh is None or after.spec is None:
            return False
        expected = self.rules.would_split(dimension, after, mesh)
        larger = {axis.name for axis in mesh.axes if axis.size > 1}
        actual = tuple(axis for axis in after.spec[dimension] or () if axis in larger)
        return expected is not None and expected != actual

    @functools.cached_property
    def moves(self) -> bool:
        """Whether the mesh alone can place an array differently."""
        return any(cause.kind in ("mesh", "device order") for cause in self.mesh)

    @functools.cached_property
    def mesh(self) -> tuple[Cause, ...]:
        return _mesh_causes(self.before.mesh, self.after.mesh)

    @functools.cached_property
    def rules(self) -> RuleCauses:
        return RuleCauses.between(self.before, self.after)

    @functools.cached_property
    def model(self) -> tuple[Cause, ...]:
        old, new = origin.model(self.before), origin.model(self.after)
        return (Cause("model", "", old, new),) if old and new and old != new else ()

    @functools.cached_property
    def sizes(self) -> tuple[Cause, ...]:
        old, new = origin.sizes(self.before), origin.sizes(self.after)
        if old is None or new is None:
            return ()
        return tuple(
            Cause("size", name, old.get(name, "unset"), new.get(name, "unset"))
            for name in {**old, **new}
            if old.get(name) != new.get(name)
        )

    @property
    def _shape_sizes(self) -> tuple[Cause, ...]:
        return tuple(one for one in self.sizes if one.name not in ("dtype", "optimizer"))

    @functools.cached_property
    def specs(self) -> tuple[Cause, ...]:
        old, new = (_field(each, "specs", dict) or {} for each in (self.before, self.after))
        return tuple(
            Cause("PartitionSpec", str(name), _value(old[name]), _value(new[name]))
            for name in old
            if name in new and old[name] != new[name]
        )

    @functools.cached_property
    def constraints(self) -> tuple[Cause, ...]:
        off = [_field(each, "unconstrained", list) or [] for each in (self.before, self.after)]
        if self.before.layout is None or self.after.layout is None:
            return ()
        return (
            *(_constraint(name, "on", None) for name in off[1] if name not in off[0]),
            *(_constraint(name, None, "on") for name in off[0] if name not in off[1]),
        )

    @functools.cached_property
    def fields(self) -> tuple[Cause, ...]:
        """Changes of the layout that place no array, such as donation or the number of steps."""
        old, new = self.before.layout, self.after.layout
        if old is None or new is None:
            return ()
        pairs = {"donation": (bool(old.get("donate")), bool(new.get("donate")))}
        pairs |= {k: (old.get(k), new.get(k)) for k in {**old, **new} if k not in _OWN_CAUSES}
        return tuple(
            Cause("field", name, _value(was), _value(now))
            for name, (was, now) in pairs.items()
            if was != now
        )


def causes(before: Snapshot, after: Snapshot) -> Causes:
    """Return all changes between two Snapshots."""
    names = _renames(before.mesh, after.mesh)
    renames = tuple(Cause("mesh axis name", "", old, new) for old, new in names.items())
    return Causes(renamed_axes(before, names), after, renames)


def renamed_axes(snapshot: Snapshot, names: dict[str, str]) -> Snapshot:
    """Return the Snapshot with other names for some mesh axes, in its mesh, specs and collectives."""
    mesh = snapshot.mesh
    if not names or mesh is None:
        return snapshot

    def axes(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in given)

    def spec(given: Spec | None) -> Spec | None:
        return None if given is None else tuple(None if e is None else axes(e) for e in given)

    return replace(
        snapshot,
        layout=_renamed_layout(snapshot.layout, names),
        mesh=replace(
            mesh, axes=tuple(replace(a, name=names.get(a.name, a.name)) for a in mesh.axes)
        ),
        arrays=tuple(replace(array, spec=spec(array.spec)) for array in snapshot.arrays),
        programs=tuple(
            replace(
                program,
                collectives=tuple(
                    replace(one, mesh_axes=None if one.mesh_axes is None else axes(one.mesh_axes))
                    for one in program.collectives
                ),
            )
            if program.collectives is not None
            else program
            for program in snapshot.programs
        ),
    )


def _renamed_layout(layout: dict[str, Any] | None, names: dict[str, str]) -> dict[str, Any] | None:
    """Return a layout, as found in a file, with other mesh axes in its rules and PartitionSpecs."""

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return names.get(value, value) if isinstance(value, str) else value

    if layout is None:
        return None
    rules, specs = layout.get("rules"), layout.get("specs")
    changed = dict(layout)
    if isinstance(rules, list):
        pairs = (rule if isinstance(rule, list) else [rule] for rule in rules)
        changed["rules"] = [[*rule[:1], *renamed(rule[1:])] for rule in pairs]
    if isinstance(specs, dict):
        changed["specs"] = {place: renamed(entry) for place, entry in specs.items()}
    return changed


def _renames(before: Mesh | None, after: Mesh | None) -> dict[str, str]:
    """Return the axes that only have another name. Both meshes must have the same shape."""
    if before is None or after is None:
        return {}
    for was, now in ((before.axes, after.axes), (_larger(before), _larger(after))):
        if [axis.size for axis in was] != [axis.size for axis in now]:
            continue
        pairs = zip(was, now, strict=True)
        names = {old.name: new.name for old, new in pairs if old.name != new.name}
        if not set(names) & set(after.axis_names) and not set(names.values()) & set(
            before.axis_names
        ):
            return names
    return {}


def _mesh_causes(before: Mesh | None, after: Mesh | None) -> tuple[Cause, ...]:
    if before is None or after is None:
        return ()
    was, now = ([(axis.name, axis.size) for axis in _larger(mesh)] for mesh in (before, after))
    if was != now:
        texts = [
            mesh_sizes_text(*zip(*sizes, strict=True)) if sizes else "1 device"
            for sizes in (was, now)
        ]
        if before.size != after.size:
            texts[1] += f" ({before.size:,} → {counted(after.size, 'device')})"
        return (Cause("mesh", "", *texts),)
    if before.devices != after.devices:
        same = set(before.devices) == set(after.devices)
        texts = [devices_text(mesh.devices) for mesh in (before, after)]
        return (Cause("device order" if same else "device ids", "", *texts),)
    gone = [name for name in before.axis_names if name not in after.axis_names]
    new = [name for name in after.axis_names if name not in before.axis_names]
    found = []
    if gone:
        found.append(Cause("mesh axes of size 1", _short(gone), "1", None))
    if new:
        found.append(Cause("mesh axes of size 1", _short(new), None, "1"))
    if not found and before.axis_names != after.axis_names:
        names = [", ".join(mesh.axis_names) for mesh in (before, after)]
        found.append(Cause("mesh axis order", "", *names))
    types = {axis.name: axis.type for axis in after.axes}
    for axis in before.axes:
        if axis.name in types and axis.type != types[axis.name]:
            found.append(Cause("axis type", axis.name, axis.type, types[axis.name]))
    return tuple(found)


def _larger(mesh: Mesh) -> tuple:
    return tuple(axis for axis in mesh.axes if axis.size > 1)


def _short(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _constraint(name: object, before: str | None, after: str | None) -> Cause:
    return Cause("sharding constraint", f"on {name}", before, after)


def _field(snapshot: Snapshot, name: str, kind: type) -> Any:
    value = (snapshot.layout or {}).get(name)
    return value if isinstance(value, kind) else None


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
