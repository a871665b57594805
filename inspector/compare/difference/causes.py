"""Which changes of a layout made an array differ: the mesh, a rule, a size or another field.

With both layouts known, causes are read from them. For checkpoints and goldens only the mesh is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from inspector.compare.difference import origin
from inspector.compare.difference.array_differences import ONLY_AFTER, ONLY_BEFORE, ArrayDifference
from inspector.compare.difference.cause import Cause, Kind
from inspector.compare.difference.rule_causes import RuleCauses
from inspector.core.formatting import counted, devices_text, mesh_sizes_text
from inspector.core.snapshot import Array, Mesh, MeshAxis, Snapshot

_SPLIT_FACTS = {"spec", "placement", "bytes per device", "replicas"}
# Layout fields that have other causes, or that the mesh shows.
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
    model: tuple[Cause, ...]
    sizes: tuple[Cause, ...]
    renames: tuple[Cause, ...]
    mesh: tuple[Cause, ...]
    rules: RuleCauses
    specs: tuple[Cause, ...]
    constraints: tuple[Cause, ...]
    fields: tuple[Cause, ...]

    @property
    def every(self) -> tuple[Cause, ...]:
        """All causes, whether an array differs because of them or not."""
        return (
            *(*self.model, *self.sizes, *self.renames, *self.mesh, *self.rules.every),
            *(*self.specs, *self.constraints, *self.fields),
        )

    @property
    def moves(self) -> bool:
        """Whether the mesh alone can place an array differently."""
        return any(cause.kind in ("mesh", "device order") for cause in self.mesh)

    def of(self, one: ArrayDifference) -> tuple[Cause, ...]:
        """Return why this array differs. The result is empty if no cause is known."""
        found = set(self._of(one))
        return tuple(cause for cause in self.every if cause in found)

    def _of(self, one: ArrayDifference) -> Iterator[Cause]:
        structure = self.model or tuple(
            cause for cause in self.sizes if cause.name not in ("dtype", "optimizer")
        )
        if one.changed in ((ONLY_BEFORE,), (ONLY_AFTER,)):
            optimizer = tuple(cause for cause in self.sizes if cause.name == "optimizer")
            is_moment = one.either.group == "opt_state" and not self.model
            yield from (optimizer if is_moment else ()) or structure
            return
        if "shape" in one.changed:
            yield from structure
        before, after = one.before, one.after
        assert before is not None and after is not None
        dtype = ("dtype", before.dtype, after.dtype)
        yield from (c for c in self.sizes if (c.name, c.before, c.after) == dtype)
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
        # An axis of size 1 in both meshes splits nothing in either.
        larger = {axis.name for axis in (*_larger(old), *_larger(new))}
        common = larger & set(old.axis_names) & set(new.axis_names)
        was, now = (
            [name for name in _axes_of(spec, dimension) if name in common]
            for spec in (before.spec, after.spec)
        )
        return was == now

    def _needs_new_rules(self, dimension: int, after: Array) -> bool:
        """Return whether the old rules on the new mesh would give this dimension another split."""
        mesh = self.after.mesh
        if mesh is None or after.spec is None:
            return False
        expected = self.rules.would_split(dimension, after, mesh)
        larger = {axis.name for axis in _larger(mesh)}
        actual = tuple(axis for axis in _axes_of(after.spec, dimension) if axis in larger)
        return expected is not None and expected != actual


def causes(before: Snapshot, after: Snapshot) -> Causes:
    """Return all changes between two Snapshots."""
    names = _renames(before.mesh, after.mesh)
    before = renamed_axes(before, names)
    old, new = before.layout, after.layout
    models = origin.model(before), origin.model(after)
    sizes = origin.sizes(before), origin.sizes(after)
    specs = _field(old, "specs", dict), _field(new, "specs", dict)
    off = _field(old, "unconstrained", list), _field(new, "unconstrained", list)
    fields = [
        {"donation": bool((layout or {}).get("donate"))}
        | {name: value for name, value in (layout or {}).items() if name not in _OWN_CAUSES}
        for layout in (old, new)
    ]
    known = old is not None and new is not None
    return Causes(
        before,
        after,
        model=_changes("model", {"": models[0]}, {"": models[1]}) if all(models) else (),
        sizes=() if None in sizes else _changes("size", *sizes, absent="unset"),
        renames=tuple(Cause("mesh axis name", "", was, now) for was, now in names.items()),
        mesh=_mesh_causes(before.mesh, after.mesh),
        rules=RuleCauses.between(before, after),
        specs=_changes(
            "PartitionSpec",
            *({name: one[name] for name in specs[0] if name in specs[1]} for one in specs),
        ),
        constraints=tuple(
            Cause("sharding constraint", f"on {name}", *values)
            for one, other, values in (
                (off[1], off[0], ("on", None)),
                (off[0], off[1], (None, "on")),
            )
            for name in one
            if known and name not in other
        ),
        # These place no array, such as donation or the number of steps.
        fields=_changes("field", *fields) if known else (),
    )


def renamed_axes(snapshot: Snapshot, names: dict[str, str]) -> Snapshot:
    """Return the Snapshot with other names for mesh axes in its mesh, layout, specs and collectives."""
    mesh = snapshot.mesh
    if not names or mesh is None:
        return snapshot

    def renamed(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(renamed, value))
        return names.get(value, value) if isinstance(value, str) else value

    layout = dict(snapshot.layout or {})
    if isinstance(rules := layout.get("rules"), list):
        pairs = (rule if isinstance(rule, list) else [rule] for rule in rules)
        layout["rules"] = [[*rule[:1], *renamed(rule[1:])] for rule in pairs]
    if isinstance(specs := layout.get("specs"), dict):
        layout["specs"] = {place: renamed(entry) for place, entry in specs.items()}
    programs = tuple(
        program
        if program.collectives is None
        else replace(
            program,
            collectives=tuple(
                replace(one, mesh_axes=renamed(one.mesh_axes)) for one in program.collectives
            ),
        )
        for program in snapshot.programs
    )
    return replace(
        snapshot,
        layout=snapshot.layout and layout,
        mesh=replace(
            mesh, axes=tuple(replace(axis, name=renamed(axis.name)) for axis in mesh.axes)
        ),
        arrays=tuple(replace(array, spec=renamed(array.spec)) for array in snapshot.arrays),
        programs=programs,
    )


def _renames(before: Mesh | None, after: Mesh | None) -> dict[str, str]:
    """Return the axes that only have another name. Both meshes must have the same shape."""
    if before is None or after is None:
        return {}
    for was, now in ((before.axes, after.axes), (_larger(before), _larger(after))):
        if [axis.size for axis in was] == [axis.size for axis in now]:
            pairs = zip(was, now, strict=True)
            names = {old.name: new.name for old, new in pairs if old.name != new.name}
            if names.keys().isdisjoint(after.axis_names) and not (
                set(names.values()) & set(before.axis_names)
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
    found = [
        Cause("mesh axes of size 1", _short(names), *sizes)
        for names, sizes in ((gone, ("1", None)), (new, (None, "1")))
        if names
    ]
    if not found and before.axis_names != after.axis_names:
        names = [", ".join(mesh.axis_names) for mesh in (before, after)]
        found.append(Cause("mesh axis order", "", *names))
    types = [{axis.name: axis.type for axis in mesh.axes} for mesh in (before, after)]
    common = [{name: each[name] for name in types[0] if name in types[1]} for each in types]
    return (*found, *_changes("axis type", *common))


def _changes(
    kind: Kind, old: Mapping[Any, Any], new: Mapping[Any, Any], absent: str = "none"
) -> tuple[Cause, ...]:
    """Return a cause for each entry that differs."""
    return tuple(
        Cause(kind, str(name), _value(old.get(name), absent), _value(new.get(name), absent))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    )


def _value(value: object, absent: str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return absent
    return value if isinstance(value, str) else json.dumps(value)


def _larger(mesh: Mesh) -> tuple[MeshAxis, ...]:
    return tuple(axis for axis in mesh.axes if axis.size > 1)


def _axes_of(spec: tuple[tuple[str, ...] | None, ...], dimension: int) -> tuple[str, ...]:
    return (spec[dimension] if dimension < len(spec) else None) or ()


def _short(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _field(layout: dict[str, Any] | None, name: str, kind: type) -> Any:
    """Return a field of a layout as found in a file. It is empty if it has another type."""
    value = (layout or {}).get(name)
    return value if isinstance(value, kind) else kind()
