"""Rules about arrays, and the arrays and programs that a rule selects."""

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase

import numpy as np

from inspector.audit.policy.fields import (
    Check,
    PolicyTable,
    Violation,
    check_known,
    name,
    nearest,
    unknown_text,
)
from inspector.prediction import memory
from inspector.records.snapshot import Array, Group, Mesh, Snapshot
from inspector.sharding import placement as sharding
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.totals import STATE_GROUPS, bytes_by_device, in_device_memory
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import bytes_text, counted, elements_text, exact_bytes_text, mesh_axes_text

GROUPS = typing.get_args(Group)


@dataclass(frozen=True)
class Selection:
    """Arrays of these groups whose whole path matches one of `patterns` and none of `excepted`.

    `*` matches any characters, including `/`.
    """

    groups: tuple[str, ...]
    patterns: tuple[str, ...] = ("*",)
    excepted: tuple[str, ...] = ()

    def arrays(self, snapshot: Snapshot) -> tuple[Array, ...]:
        """Return the selected arrays.

        Raises:
          InvalidInput: if a group or pattern matches no array, as the rule would then check nothing.
        """
        grouped = [array for array in snapshot.arrays if array.group in self.groups]
        if not grouped:
            raise InvalidInput(f"the Snapshot has no array of the group {' or '.join(self.groups)}")
        for pattern in self.patterns:
            if not any(fnmatchcase(array.path, pattern) for array in grouped):
                similar = nearest(pattern, [array.path for array in grouped])
                raise InvalidInput(f"no array of {', '.join(self.groups)} matches {shown(pattern)}{similar}")
        return tuple(array for array in grouped if self.includes(array.path, array.group))

    def includes(self, path: str, group: str) -> bool:
        return (
            group in self.groups
            and any(fnmatchcase(path, pattern) for pattern in self.patterns)
            and not any(fnmatchcase(path, pattern) for pattern in self.excepted)
        )


def read_selection(fields: PolicyTable, groups: tuple[str, ...]) -> Selection:
    """Read the fields `groups`, `arrays` and `except`. `groups` is the default."""
    return Selection(
        fields.choices("groups", GROUPS) or groups,
        fields.texts("arrays") or ("*",),
        fields.texts("except") or (),
    )


def larger_axes(mesh: Mesh) -> tuple[str, ...]:
    return tuple(axis.name for axis in mesh.axes if axis.size > 1)


def mesh_of(snapshot: Snapshot, array: Array) -> Mesh:
    """Return the mesh of an array; raise InvalidInput if the Snapshot has no mesh."""
    mesh = snapshot.mesh_of(array)
    if mesh is None:
        raise InvalidInput("the Snapshot has no mesh")
    return mesh


def axis_names(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the axes of all meshes; raise InvalidInput if the Snapshot has no mesh."""
    if snapshot.mesh is None:
        raise InvalidInput("the Snapshot has no mesh")
    return tuple(dict.fromkeys(name for mesh in snapshot.meshes for name in mesh.axis_names))


def unsplit_axes(array: Array, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes larger than 1 along which the array is replicated, or None if unknown."""
    axes = larger_axes(mesh)
    if array.shards is None and array.spec is not None:
        used = {axis for entry in array.spec for axis in entry or ()}
        return tuple(axis for axis in axes if axis not in used)
    placement = sharding.place_array(array, mesh)
    if placement is not None:
        block = placement.block.reshape(mesh.shape)
        return tuple(
            axis.name
            for i, axis in enumerate(mesh.axes)
            if axis.size > 1 and bool(np.all(block == np.take(block, [0], axis=i)))
        )
    # Imported arrays may only have a number of replicas.
    if array.replicas == mesh.size:
        return axes
    return () if array.replicas == 1 else None


_MAX_NAMED = 5  # arrays in a violation about many


def replicated(fields: PolicyTable) -> Check:
    """No array larger than `over` bytes is replicated on every device.

    With `along`, none is replicated along one of these mesh axes. On one device nothing is replicated.
    """
    over = fields.size("over", required=True) or 0
    selection, along = read_selection(fields, ("params",)), fields.texts("along")

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        names = axis_names(snapshot)
        for axis in along or ():
            check_known(axis, names, "along")
        violations, unknown = [], []
        arrays = selection.arrays(snapshot)
        for array in sorted(arrays, key=lambda array: (-(array.bytes or 0), array.path)):
            if array.bytes is not None and array.bytes <= over:
                continue
            mesh = mesh_of(snapshot, array)
            wanted = set(larger_axes(mesh))
            unsplit = unsplit_axes(array, mesh)
            how = [f"not sharded over {name(axis)}" for axis in along or () if axis in (unsplit or ())]
            if along is None and wanted and wanted <= set(unsplit or ()):
                how.append(f"replicated on all {counted(mesh.size, 'device')}")
            if unsplit is None or (how and array.bytes is None):
                unknown.append(array.path)
                continue
            size, limit = exact_bytes_text(array.bytes), exact_bytes_text(over)
            violations += [
                Violation(f"{name(array.path)}: {size} {words} (limit {limit})", array.path) for words in how
            ]
        return violations, unknown_text("placement or size", unknown)

    return check


def duplicated(fields: PolicyTable) -> Check:
    """At most this share of the bytes on all devices are further copies.

    The share is (bytes on all devices − bytes once) / bytes on all devices: 0 without replication, 87.5%
    if everything is replicated on 8 devices.
    """
    limit = _share(fields)
    selection = read_selection(fields, STATE_GROUPS)

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        axis_names(snapshot)
        arrays = selection.arrays(snapshot)
        everywhere = {
            array.path: memory.bytes_everywhere(array, mesh_of(snapshot, array)) for array in arrays
        }
        missing = [array.path for array in arrays if array.bytes is None or everywhere[array.path] is None]
        if missing:
            return [], unknown_text("bytes", missing)
        again = {array.path: (everywhere[array.path] or 0) - (array.bytes or 0) for array in arrays}
        part, whole = sum(again.values()), sum(number or 0 for number in everywhere.values())
        if part * 100 <= limit * whole:
            return [], None
        return [
            Violation(
                f"{_percent(part, whole, limit)} of the bytes on all devices are duplicates, "
                f"{bytes_text(part)} of {bytes_text(whole)} (limit {limit:f}%); "
                f"{_largest({path: more for path, more in again.items() if more > 0}, bytes_text)}"
            )
        ], None

    return check


def not_fully_sharded(fields: PolicyTable) -> Check:
    """At most this share of the bytes (counted once) is in arrays that are not sharded over all of `axes`.

    The default is all mesh axes larger than 1. MaxText's `assert_params_sufficiently_sharded` computes the
    same share over its own list of axes, with a tolerance of 2%. If bytes are unknown, elements count.
    """
    limit = _share(fields)
    selection, axes = read_selection(fields, ("params",)), fields.texts("axes")

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        names = axis_names(snapshot)
        for axis in axes or ():
            check_known(axis, names, "axes")
        larger = dict.fromkeys(axis for mesh in snapshot.meshes for axis in larger_axes(mesh))
        wanted = [axis for axis in larger if axes is None or axis in axes]
        arrays = {array.path: array for array in selection.arrays(snapshot)}
        missing: dict[str, list[str]] = {}
        unknown = []
        for path, array in arrays.items():
            unsplit = unsplit_axes(array, mesh_of(snapshot, array))
            if unsplit is None:
                unknown.append(path)
            elif not_over := [axis for axis in wanted if axis in unsplit]:
                missing[path] = not_over
        if unknown:
            return [], unknown_text("placement", unknown)
        by_bytes = all(array.bytes is not None for array in arrays.values())
        sizes = {path: array.bytes if by_bytes else array.elements for path, array in arrays.items()}
        weight = {path: size for path, size in sizes.items() if size is not None}
        if len(weight) < len(sizes):
            return [], unknown_text("size", [path for path in sizes if path not in weight])
        bad = {path: weight[path] for path in missing}
        part, whole = sum(bad.values()), sum(weight.values())
        if part * 100 <= limit * whole:
            return [], None

        def spec(path: str) -> str:
            over = mesh_axes_text(missing[path], name)
            return f" {name(spec_text(arrays[path].spec))} not over {over}"

        return [
            Violation(
                f"{_percent(part, whole, limit)} of the {'bytes' if by_bytes else 'elements'} are in arrays "
                f"not sharded over all of {', '.join(map(name, wanted))} (limit {limit:f}%); "
                f"{_largest(bad, bytes_text if by_bytes else elements_text, spec)}"
            )
        ], None

    return check


def bytes_per_device(fields: PolicyTable) -> Check:
    """The arrays take at most `most` bytes of the memory of the fullest device."""
    most = fields.size("most", required=True) or 0
    selection = read_selection(fields, STATE_GROUPS)

    def check(snapshot: Snapshot) -> tuple[list[Violation], str | None]:
        arrays = in_device_memory(snapshot, selection.arrays(snapshot))
        unknown = [a.path for a in arrays if a.shards is None and a.bytes_per_device is None]
        unknown += [a.path for a in arrays if a.shards is not None and a.bytes is None]
        if unknown:
            return [], unknown_text("bytes per device", unknown)
        by_device = bytes_by_device(snapshot, arrays)
        device = max(by_device, key=lambda device: by_device[device], default=-1)
        number = by_device.get(device, 0)
        if number <= most:
            return [], None
        alike = not snapshot.other_meshes and all(array.shards is None for array in arrays)
        where = "each device" if alike else f"device {device}"
        per_device = {array.path: array.bytes_per_device or 0 for array in arrays}
        return [
            Violation(
                f"{exact_bytes_text(number)} of {', '.join(selection.groups)} on {where} "
                f"(limit {exact_bytes_text(most)}); {_largest(per_device, bytes_text)}"
            )
        ], None

    return check


def _share(fields: PolicyTable) -> Decimal:
    return fields.percent("most_percent", required=True) or Decimal(0)


def _largest(
    amounts: Mapping[str, int], to_text: Callable[[int], str], more: Callable[[str], str] = lambda path: ""
) -> str:
    ranked = sorted(amounts, key=lambda path: -amounts[path])[:_MAX_NAMED]
    texts = [f"{name(path)} {to_text(amounts[path])}{more(path)}" for path in ranked]
    return f"the largest: {', '.join(texts)}"


def _percent(part: int, whole: int, limit: Decimal) -> str:
    """Return a share above a limit, with at least two decimals, and enough to show that it is above."""
    share = Decimal(part) * 100 / Decimal(whole)
    texts = (f"{share:.{decimals}f}" for decimals in range(2, 20))
    return next((text for text in texts if Decimal(text) > limit), f"{share:f}") + "%"
