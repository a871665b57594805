"""The mesh on its machine: the links of each mesh axis."""

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.figures.chip_panels import panels_of
from inspector.machines import targets
from inspector.machines.links import NoLink
from inspector.machines.mesh_links import links_of
from inspector.machines.targets import Target
from inspector.sections.section import Inline, Listing, Strong


def target_of(snapshot: Snapshot) -> Target | None:
    """Return the machine of the Snapshot, or None if it or the places of its chips are unknown."""
    if snapshot.mesh is None or snapshot.source.target is None:
        return None
    try:
        target = targets.parse(snapshot.source.target)
    except InvalidInput:
        return None
    return None if not axes(snapshot) or panels_of(snapshot.mesh) is None else target


def axes(snapshot: Snapshot) -> list[str]:
    """Return the mesh axes larger than 1, or all mesh axes if there are none."""
    assert snapshot.mesh is not None
    large = [axis.name for axis in snapshot.mesh.axes if axis.size > 1]
    return large or [*snapshot.mesh.axis_names]


def links(snapshot: Snapshot, target: Target) -> Listing:
    """Return the links of every mesh axis."""
    mesh = snapshot.mesh
    assert mesh is not None
    items: list[tuple[Inline, ...]] = []
    for (name,), link in links_of(mesh, target.chip, [(name,) for name in axes(snapshot)]).items():
        kind = "unknown" if isinstance(link, NoLink) else link.name
        items.append((Strong(name), f": {kind}. {link.assumption}"))
    return Listing(tuple(items))
