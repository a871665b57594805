"""Select the arrays of a rule, and find the mesh axes along which an array is replicated."""

import typing
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from inspector.checks.policy.fields import Fields, nearest
from inspector.core import sharding
from inspector.core.errors import InvalidInput, shown
from inspector.core.snapshot import Array, Group, Mesh, Snapshot

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


def read_selection(fields: Fields, groups: tuple[str, ...]) -> Selection:
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
