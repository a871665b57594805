"""What differs between two meshes: the names, sizes and order of their axes, and the devices on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inspector.compare.difference import origin
from inspector.compare.difference.splitting import Split
from inspector.core.formatting import counted, devices_text
from inspector.core.snapshot import Array, Mesh

Axes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class MeshChange:
    """Two meshes held against each other.

    renamed: axes that stand in the same place with the same size under another name, old name → new.
    clause: what changed as the beginning of a sentence, without a full stop; empty if nothing did.
    moves: whether a device may hold another block although the same axes split an array.
    """

    before: Mesh | None
    after: Mesh | None
    renamed: Mapping[str, str] = field(default_factory=dict)
    clause: str = ""
    moves: bool = False

    def renamed_axes(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes of the first mesh by their names in the second."""
        return tuple(self.renamed.get(name, name) for name in axes)

    def explains(self, dimension: int, before: Array, after: Array) -> bool:
        """Whether a dimension is split otherwise only because the axes that its spec names changed."""
        if before.spec is None or after.spec is None or not self.before or not self.after:
            return False
        old, new = (
            (spec[dimension] if dimension < len(spec) else None) or ()
            for spec in (before.spec, after.spec)
        )
        sizes = _sizes(self.before, self.renamed), _sizes(self.after)
        # An axis that only one of the meshes has cannot stand in the other's spec, and one that is of
        # size 1 in both splits nothing in either.
        says = [
            tuple(name for name in axes if name in other and max(own[name], other[name]) > 1)
            for axes, own, other in (
                (self.renamed_axes(old), *sizes),
                (new, *reversed(sizes)),
            )
        ]
        return says[0] == says[1]

    def unnamed(
        self, before: Array | None, after: Array | None, change: tuple[Axes, Axes]
    ) -> tuple[str, ...]:
        """Axes that the dimension's spec named while they were of size 1, and does not name any more.

        They would split it on the second mesh; without this, the change would look like one of the mesh.
        """
        if not (before and after and before.spec and after.spec and self.after):
            return ()
        split = {name for name, size in _axes(self.after) if size > 1}
        old_names = {name for name, _ in change[0]}
        found: dict[str, None] = {}
        for old, new in zip(before.spec, after.spec, strict=False):
            told = self.renamed_axes(old or ())
            if old_names <= set(old or ()) and {name for name, _ in change[1]} <= set(new or ()):
                found |= dict.fromkeys(
                    name for name in told if name in split and name not in (new or ())
                    and name not in self.renamed_axes(tuple(old_names))
                )  # fmt: skip
        return tuple(found)


def mesh_change(before: Mesh | None, after: Mesh | None) -> MeshChange:
    """Compare two meshes; nothing is said of one that is not known."""
    if before is None or after is None:
        return MeshChange(before, after)
    renamed = _renamed(before, after)
    was, becomes = _axes(before), _axes(after)
    told = tuple((renamed.get(name, name), size) for name, size in was)
    if told != becomes:
        clause = f"The mesh is {_text(after)} in place of {_text(before)}"
        if before.size != after.size:
            clause += f", {before.size:,} → {counted(after.size, 'device')}"
        return MeshChange(before, after, renamed, clause, moves=True)
    if set(before.devices) == set(after.devices) and before.devices != after.devices:
        clause = (
            f"The mesh has its devices in another order, {devices_text(after.devices)} in place of "
            f"{devices_text(before.devices)}"
        )
        return MeshChange(before, after, renamed, clause, moves=True)
    if renamed:
        names = ", ".join(f"{old} is now called {new}" for old, new in renamed.items())
        noun = "axis" if len(renamed) == 1 else "axes have other names:"
        return MeshChange(before, after, renamed, f"The mesh {noun} {names}")
    return MeshChange(before, after, renamed, _of_idle_axes(before, after))


def axes_text(axes: Axes) -> str:
    """Mesh axes with their sizes, `fsdp 4 × expert 2`; `unsharded` where there are none."""
    return " × ".join(f"{name} {size}" for name, size in axes) or "unsharded"


def split_differs(before: Split, after: Split, change: MeshChange) -> bool:
    """Whether the splits differ once axes with new names are taken for what they were."""
    told = tuple(
        tuple((change.renamed.get(name, name), size) for name, size in axes) for axes in before
    )
    return told != after


def _text(mesh: Mesh) -> str:
    return axes_text(_axes(mesh)) if _axes(mesh) else origin.mesh_text(mesh)


def _axes(mesh: Mesh) -> Axes:
    return tuple((axis.name, axis.size) for axis in mesh.axes if axis.size > 1)


def _sizes(mesh: Mesh, renamed: Mapping[str, str] | None = None) -> dict[str, int]:
    return {(renamed or {}).get(axis.name, axis.name): axis.size for axis in mesh.axes}


def _renamed(before: Mesh, after: Mesh) -> dict[str, str]:
    """Axes that only have another name. Both meshes must be of one shape, and each name new."""
    for was, becomes in (
        (tuple((axis.name, axis.size) for axis in mesh.axes) for mesh in (before, after)),
        (_axes(before), _axes(after)),
    ):
        if [size for _, size in was] != [size for _, size in becomes]:
            continue
        found = {old: new for (old, _), (new, _) in zip(was, becomes, strict=True) if old != new}
        if all(old not in after.axis_names for old in found) and all(
            new not in before.axis_names for new in found.values()
        ):
            return found
    return {}


def _of_idle_axes(before: Mesh, after: Mesh) -> str:
    """What changed of axes that split nothing."""
    gone = [name for name in before.axis_names if name not in after.axis_names]
    new = [name for name in after.axis_names if name not in before.axis_names]
    said = []
    for names, what in ((gone, "lacks"), (new, "gains")):
        if names:
            shown = (
                ", ".join(names)
                if len(names) <= 3
                else f"{', '.join(names[:2])} and {len(names) - 2} more"
            )
            said.append(f"{what} {counted(len(names), 'axis', 'axes')} of size 1 ({shown})")
    if said:
        each = "which splits" if len(gone) + len(new) == 1 else "which split"
        return f"The mesh {' and '.join(said)}, {each} nothing"
    types = [
        f"{old.name} is {new.type} in place of {old.type}"
        for old, new in zip(before.axes, after.axes, strict=False)
        if old.name == new.name and old.type != new.type
    ]
    if types:
        return f"Axis types of the mesh differ: {', '.join(types)}"
    if before.axis_names != after.axis_names:
        return "The mesh has its axes of size 1 in another order, which splits nothing"
    if before.devices != after.devices:
        return "The devices of the mesh have other numbers"
    return ""
