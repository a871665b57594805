"""Which links a mesh axis uses, and in a sentence how that is known.

A Snapshot of a TPU slice says where each device stands, and the links follow from it. One of emulated
devices says nothing of where they would stand in a torus or a rack: its links are assumed, and each says
what was taken for granted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Mesh
from inspector.machines.hardware import Chip, Nodes, Torus
from inspector.machines.links import (
    Link,
    NodeLink,
    NoLink,
    Ring,
    TorusLink,
    effective_bytes_per_second,
)
from inspector.machines.torus_groups import CORES, Lie, Stretch, lies
from inspector.machines.torus_places import TorusPlaces, places_of

Axes = tuple[str, ...]


def links_of(
    mesh: Mesh, chip: Chip, wanted: Iterable[Axes] | None = None
) -> Mapping[Axes, Link | NoLink]:
    """The links of groups along these mesh axes on chips of this kind.

    Where the mesh says at which places of a torus its devices stand, and the chip has such a torus, the
    links are those between these places. Otherwise they are assumed.

    TPUs: each mesh axis of more than one device takes a torus axis of its own, longest first; if there
    are too few, the shortest share the last. GPUs: devices fill nodes in mesh order.

    Args:
      wanted: the axes of each group; by default every axis of more than one device, and all together.

    Raises:
      InvalidInput: an axis is not of the mesh.
    """
    split = tuple(axis.name for axis in mesh.axes if axis.size > 1)
    if wanted is None:
        wanted = [(name,) for name in split] + ([split] if len(split) > 1 else [])
    groups = [tuple(axes) for axes in wanted]
    for axes in groups:
        for name in axes:
            if name not in mesh.axis_names:
                raise InvalidInput(
                    f"a group runs along {shown(name)}, but the mesh has only "
                    f"{', '.join(map(shown, mesh.axis_names)) or 'no axes'}"
                )
    if isinstance(chip.network, Nodes):
        return {axes: _node_link(axes, mesh, chip, chip.network) for axes in groups}
    places = places_of(mesh)
    if (
        places is not None
        and len(places.topology) == chip.network.axes
        and places.devices_per_chip == chip.devices
    ):
        return {axes: _placed_link(axes, mesh, chip, chip.network, places) for axes in groups}
    return _torus_links(groups, mesh, chip, chip.network)


def _placed_link(
    axes: Axes, mesh: Mesh, chip: Chip, torus: Torus, places: TorusPlaces
) -> TorusLink:
    """The link between the places at which the groups' devices stand."""
    names = [axis.name for axis in mesh.axes if axis.name in axes and axis.size > 1]
    if not names:
        return TorusLink((_nobody(torus),))
    found = [
        (TorusLink(_rings(lie, chip, torus)), lie)
        for lie in lies(_groups(axes, mesh), places, in_order=len(names) == 1)
    ]
    link, lie = min(found, key=lambda one: effective_bytes_per_second(one[0]))
    order = mesh.extra.get("device_order")
    known = f" ({order})" if order in ("row-major", "torus") else ""
    said = [
        f"The device order{known} puts {' × '.join(names)} ({lie.members}) on {_lie_text(lie)}."
    ]
    if len(found) > 1:
        said.append("Groups differ in this; the slowest is taken for all.")
    if chip.devices > 1:
        said.append(_shared_by_devices(chip))
    return replace(link, assumption=" ".join(said))


def _rings(lie: Lie, chip: Chip, torus: Torus) -> tuple[Ring, ...]:
    rate = torus.bytes_per_second / chip.devices
    if lie.line is not None:
        apart, sharing = lie.line
        return (Ring(lie.members, rate / sharing, apart * torus.hop_seconds, wraps=False),)
    return tuple(
        Ring(one.count, rate / one.sharing, one.apart * torus.hop_seconds, one.ring)
        for one in lie.stretches
    )


def _lie_text(lie: Lie) -> str:
    """`y: a ring of 4`, `x and y: a line of 2 of the 4 chips along x and …`."""
    axes = [one.axis for one in lie.stretches if one.axis != CORES]
    where = _and(axes) or "one chip"
    if lie.line is not None:
        apart, sharing = lie.line
        return (
            f"{where}, but not as a box or in order: taken as a line of {lie.members}, "
            f"one up to {counted(apart, 'link')} from the next{_shared_by_groups(sharing)}"
        )
    return f"{where}: {'; '.join(_stretch_text(one, len(axes) > 1) for one in lie.stretches)}"


def _stretch_text(one: Stretch, several: bool) -> str:
    if one.axis == CORES:
        return f"the {one.count} devices of a chip, taken to be linked as neighbouring chips are"
    along = f" along {one.axis}" if several else ""
    if one.ring:
        return f"a ring of {one.count}{along}"
    if one.whole:
        return f"a line of {one.count}{along}, which does not wrap around"
    text = f"a line of {one.count} of the {one.length} chips{along}"
    if one.apart > 1:
        text += f", {one.apart} links from one to the next"
    return text + _shared_by_groups(one.sharing)


def _shared_by_groups(sharing: int) -> str:
    return f", over links that {sharing} groups share" if sharing > 1 else ""


def _shared_by_devices(chip: Chip) -> str:
    return f"The {chip.devices} devices of a chip share its links, so each has 1/{chip.devices}."


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _torus_links(
    groups: list[Axes], mesh: Mesh, chip: Chip, torus: Torus
) -> dict[Axes, Link | NoLink]:
    chips = math.ceil(mesh.size / chip.devices)
    if chip.pod_chips is not None and chips > chip.pod_chips:
        why = (
            f"{counted(chips, 'chip')} are more than a pod of {chip.title} has ({chip.pod_chips:,}), "
            "and which axes would cross the network between pods is not known"
        )
        return {axes: NoLink(why) for axes in groups}
    rings, sentences = {}, {}
    split = sorted((axis for axis in mesh.axes if axis.size > 1), key=lambda axis: -axis.size)
    alone = len(split) if len(split) <= torus.axes else torus.axes - 1
    for number, axis in enumerate(split):
        sharing = 1 if number < alone else len(split) - alone
        folded = axis.size > max(torus.pod)
        wraps = sharing == 1 and (folded or torus.wraps_around(axis.size, chips))
        rings[axis.name] = Ring(
            axis.size,
            torus.bytes_per_second / chip.devices / sharing,
            torus.hop_seconds,
            wraps,
        )
        sentences[axis.name] = _torus_sentence(axis.name, axis.size, torus, sharing, folded, wraps)
    found: dict[Axes, Link | NoLink] = {}
    for axes in groups:
        used = [name for name in axes if name in rings]
        said = [sentences[name] for name in used]
        if chip.devices > 1:
            said.append(_shared_by_devices(chip))
        found[axes] = TorusLink(
            tuple(rings[name] for name in used) or (_nobody(torus),),
            " ".join(["Assumed:", *said]) if used else "",
        )
    return found


def _torus_sentence(
    name: str, size: int, torus: Torus, sharing: int, folded: bool, wraps: bool
) -> str:
    if sharing > 1:
        others = counted(sharing - 1, "other mesh axis", "other mesh axes")
        return (
            f"{name} ({size}) shares a torus axis with {others}, "
            f"for a torus has {torus.axes}: 1/{sharing} of each link, no wrap-around."
        )
    if folded:
        return (
            f"{name} ({size}), longer than any torus axis ({max(torus.pod)}), is folded into a ring "
            "over several."
        )
    if wraps:
        return f"{name} ({size}) is a torus axis of its own, which wraps around."
    return (
        f"{name} ({size}) is a torus axis of its own, a line without wrap-around "
        f"(an axis {torus.wrap_rule})."
    )


def _nobody(torus: Torus) -> Ring:
    return Ring(1, torus.bytes_per_second, torus.hop_seconds)


def _node_link(axes: Axes, mesh: Mesh, chip: Chip, nodes: Nodes) -> Link:
    group = _groups(axes, mesh)
    node = np.sort(group // nodes.gpus, axis=1)
    new = np.diff(node, axis=1, prepend=-1) != 0
    spanned = int(new.sum(axis=1).max())
    # The fewest in one node: these have the least of its network.
    members = math.ceil(group.shape[1] / spanned)
    names = " × ".join(axes) or "no axis"
    order = f"devices fill nodes of {nodes.gpus} {chip.title} in mesh order"
    if spanned == 1:
        said = f"Assumed: {order}, so that {names} ({group.shape[1]}) stays inside a node."
    else:
        others = nodes.gpus // members
        said = (
            f"Assumed: {order}, so that {names} ({group.shape[1]}) runs over {spanned} nodes with "
            f"{counted(members, 'GPU')} in each"
            + (f"; {others} groups share a node's network." if others > 1 else ".")
        )
        if group.shape[1] % spanned or not bool((new.sum(axis=1) == spanned).all()):
            said += " Groups differ in this; the widest is taken for all."
    return NodeLink(
        members, spanned, nodes.gpus, nodes.bytes_per_second, nodes.node_bytes_per_second, said
    )


def _groups(axes: Axes, mesh: Mesh) -> np.ndarray:
    """(groups, members): the positions in the mesh of each group along these axes."""
    # Not an array of as many dimensions as the mesh has: NumPy knows at most 64.
    positions = np.arange(mesh.size)
    key = np.zeros(mesh.size, dtype=np.int64)
    stride, count = mesh.size, 1
    for axis in mesh.axes:
        stride //= axis.size
        if axis.name in axes:
            count *= axis.size
        else:
            key = key * axis.size + positions // stride % axis.size
    return positions[np.argsort(key, kind="stable")].reshape(-1, count)
