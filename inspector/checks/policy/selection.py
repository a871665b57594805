"""Which arrays a rule is about, and over which mesh axes devices hold the same of one."""

from __future__ import annotations

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
    """Arrays of these groups whose path matches one of `patterns` and none of `excepted`.

    A pattern is matched against the whole path; `*` stands for any characters, `/` among them.
    """

    groups: tuple[str, ...]
    patterns: tuple[str, ...] = ("*",)
    excepted: tuple[str, ...] = ()

    def arrays(self, found: Snapshot) -> tuple[Array, ...]:
        """The arrays that are meant.

        Raises:
          InvalidInput: there are none, or none that a pattern matches: a rule about nothing says nothing.
        """
        grouped = [array for array in found.arrays if array.group in self.groups]
        if not grouped:
            raise InvalidInput(f"the Snapshot has no array of the group {' or '.join(self.groups)}")
        for pattern in self.patterns:
            if not any(fnmatchcase(array.path, pattern) for array in grouped):
                near = nearest(pattern, [array.path for array in grouped])
                raise InvalidInput(
                    f"no array of {', '.join(self.groups)} has a path like {shown(pattern)}{near}"
                )
        return tuple(array for array in grouped if self.means(array.path, array.group))

    def means(self, path: str, group: str) -> bool:
        """Whether an array of this path and group is meant."""
        return (
            group in self.groups
            and any(fnmatchcase(path, pattern) for pattern in self.patterns)
            and not any(fnmatchcase(path, pattern) for pattern in self.excepted)
        )


def read_selection(fields: Fields, groups: tuple[str, ...]) -> Selection:
    """The fields `groups`, `arrays` and `except` of a table; `groups` where it names none."""
    return Selection(
        fields.choices("groups", GROUPS) or groups,
        fields.texts("arrays") or ("*",),
        fields.texts("except") or (),
    )


def larger_axes(mesh: Mesh) -> tuple[str, ...]:
    """The mesh axes that split anything: those larger than 1."""
    return tuple(axis.name for axis in mesh.axes if axis.size > 1)


def mesh_of(found: Snapshot) -> Mesh:
    """The mesh.

    Raises:
      InvalidInput: the Snapshot has none.
    """
    if found.mesh is None:
        raise InvalidInput("the Snapshot has no mesh")
    return found.mesh


def unsplit_axes(array: Array, mesh: Mesh) -> tuple[str, ...] | None:
    """The mesh axes larger than 1 along which all devices hold the same of the array; None if unknown."""
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
    # Of what was imported, sometimes only the number of copies is known.
    if array.replicas == mesh.size:
        return axes
    return () if array.replicas == 1 else None
