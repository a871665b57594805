"""Map mesh axes to links of the machine, and explain each choice in a sentence.

The Snapshot of a TPU slice contains the torus coordinates of its devices, which determine the links. That of
several slices also contains the slice of each device: a group that crosses slices uses the data center
network (DCN), and the links in each slice. For emulated devices the links are assumed, and `assumption`
states how.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from inspector.machines import links
from inspector.machines.hardware import Chip, Nodes, Torus
from inspector.machines.links import Link, NodeLink, NoLink, Ring, SliceLink, TorusLink
from inspector.machines.torus_groups import CORES, AxisSpan, GroupShape, TorusPlaces, group_shapes, places_of
from inspector.records.collectives import OPERATIONS
from inspector.records.snapshot import Collective, Mesh, MeshAxis
from inspector.sharding.meshes import DCN, slices_of
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import and_text, counted, mesh_axes_text

Axes = tuple[str, ...]


def links_of(mesh: Mesh, chip: Chip, wanted: Iterable[Axes] | None = None) -> Mapping[Axes, Link | NoLink]:
    """Return the links of the groups along each of these tuples of mesh axes, on chips of this kind.

    Raise InvalidInput if the mesh lacks one of them.

    If the mesh contains coordinates on a torus like that of the chip, the links are those between them.
    Otherwise they are assumed. If the shape of the TPU slice is known, mesh axes are on its axes as
    `jax.make_mesh` places them. If it is unknown, or they do not fit, each mesh axis of more than one device
    has a torus axis, longest first; if there are too few, the shortest mesh axes share the last one. GPUs
    fill nodes in mesh order. If the mesh contains the slice of each device, links are assumed inside of the
    slices only.

    Args:
      wanted: by default each mesh axis of more than one device, and all of these together.
    """
    split = tuple(axis.name for axis in mesh.axes if axis.size > 1)
    if wanted is None:
        wanted = [(name,) for name in split] + ([split] if len(split) > 1 else [])
    groups = [tuple(axes) for axes in wanted]
    for name in dict.fromkeys(name for axes in groups for name in axes):
        if name not in mesh.axis_names:
            raise InvalidInput(
                f"mesh axis is {shown(name)}, but must be one of "
                f"{', '.join(map(shown, mesh.axis_names)) or 'none: the mesh has no axes'}"
            )
    if isinstance(chip.network, Nodes):
        return {axes: _node_link(axes, mesh, chip, chip.network) for axes in groups}
    torus, places, slices = chip.network, places_of(mesh), slices_of(mesh)
    of_chip = (torus.axes, chip.devices)
    inside: Callable[[Axes, np.ndarray], TorusLink | NoLink]
    if places is not None and (len(places.topology), places.devices_per_chip) == of_chip:
        inside = partial(_placed_link, mesh, chip, torus, places)
    elif slices is None:
        return dict(_assumed_links(groups, mesh, chip, torus))
    else:
        first_slice = _one_slice(mesh, slices)
        if first_slice is None:
            why = "the slices are not blocks of the mesh, and the places of their devices are unknown"
            return {axes: NoLink(assumption=why) for axes in groups}
        inside = partial(_assumed_link, _assumed_links(groups, first_slice, chip, torus))
    return {axes: _link_of_slices(axes, mesh, chip, slices, inside) for axes in groups}


def slice_sharing(mesh: Mesh, axes: Axes) -> tuple[int, int]:
    """Return the number of TPU slices of a group along these axes, and its devices in each slice.

    Groups of different shapes count as the one over the most slices.
    """
    groups, slices = _groups(axes, mesh), slices_of(mesh)
    size = groups.shape[1]
    if slices is None:
        return 1, size
    crossed = int((np.diff(np.sort(slices[groups], axis=1), axis=1) != 0).sum(axis=1).max(initial=0)) + 1
    return crossed, max(size // crossed, 1)


def by_network(collectives: Iterable[Collective], mesh: Mesh) -> Iterator[Collective]:
    """Yield collectives, with those across the network between slices apart (`network`).

    With m devices of a group in each of s slices, an all-gather of V bytes sends V·(s−1) ÷ (s·m) of them
    between slices (`links`), and the rest of V·(s·m−1) ÷ (s·m) inside.
    """
    if slices_of(mesh) is None:
        yield from collectives
        return
    sharing: dict[Axes, tuple[int, int]] = {}
    for collective in collectives:
        wire, axes = collective.wire_bytes_per_device, spanned_axes(collective, mesh)
        slices, members = 1, 1
        if wire and axes:
            if axes not in sharing:
                sharing[axes] = slice_sharing(mesh, axes)
            slices, members = sharing[axes]
        if slices > 1:
            slices, members = _level(collective, slices, members)
        if not wire or slices == 1:
            yield collective
            continue
        size, route = slices * members, OPERATIONS[collective.op].route
        shares = {"ring": (slices - 1) / (size - 1), "all-to-all": (size - members) / (size - 1)}
        between = round(wire * shares.get(route, 1.0))
        if between < wire:
            yield replace(collective, network=None, wire_bytes_per_device=wire - between)
        yield replace(collective, network=DCN, mesh_axes=axes, wire_bytes_per_device=between)


def bytes_between_slices(collectives: Iterable[Collective], mesh: Mesh) -> dict[str, int]:
    """Return the bytes that a device sends over the network between slices in one run, by mesh axes.

    Unknown bytes do not count.
    """
    sent: dict[str, int] = {}
    for collective in by_network(collectives, mesh):
        if collective.network == DCN and collective.executions and collective.mesh_axes:
            key, wire = "+".join(collective.mesh_axes), collective.wire_bytes_per_device or 0
            sent[key] = sent.get(key, 0) + collective.executions * wire
    return sent


def spanned_axes(collective: Collective, mesh: Mesh) -> Axes | None:
    """Return the mesh axes that form a collective's groups, or else those along which members differ.

    The compiler can use a part of an axis, such as 4 of 16 devices. None if the groups are unknown.
    """
    if collective.mesh_axes is not None or not collective.device_groups:
        return collective.mesh_axes
    members = np.array(collective.device_groups[0])
    if members.size == 0 or members.max() >= mesh.size:
        return None
    places = np.array(np.unravel_index(members, mesh.shape)).reshape(len(mesh.shape), -1)
    differ = (places != places[:, :1]).any(axis=1)
    return tuple(name for name, differs in zip(mesh.axis_names, differ, strict=True) if differs)


def link_of(collective: Collective, link: Link | NoLink) -> Link | NoLink:
    """Return the part of the link of a collective's mesh axes that the collective uses.

    The compiler splits a collective over axes that cross slices: one part between the slices, over DCN, and
    others inside of each slice.
    """
    if not isinstance(link, SliceLink):
        return link
    slices, members = _level(collective, link.slices, link.inside.size)
    if slices == 1:
        return link.inside
    if members == link.inside.size:
        return link
    return replace(link, inside=TorusLink((replace(link.inside.rings[0], size=1),)))


def _level(collective: Collective, slices: int, members: int) -> tuple[int, int]:
    """Return the slices of a collective's groups, and their devices in each, of axes with this many.

    A text before a compile does not name the network. Then the size of the groups says which part it is.
    """
    size = collective.group_size
    if size == members and collective.network != DCN:
        return 1, members
    return slices, 1 if size == slices else members


def _link_of_slices(
    axes: Axes,
    mesh: Mesh,
    chip: Chip,
    slices: np.ndarray | None,
    inside: Callable[[Axes, np.ndarray], TorusLink | NoLink],
) -> Link | NoLink:
    """Return the link of groups that may cross slices.

    inside: the link of mesh positions (groups, members), where no group crosses slices.
    """
    groups = _groups(axes, mesh)
    if slices is None:
        return inside(axes, groups)
    order = np.argsort(slices[groups], axis=1, kind="stable")
    groups = np.take_along_axis(groups, order, axis=1)
    crossed = int((np.diff(slices[groups], axis=1) != 0).sum(axis=1).max()) + 1
    if crossed == 1:
        return inside(axes, groups)
    names = mesh_axes_text(axes)
    why = f"groups along {names} have different numbers of devices in each slice"
    if groups.shape[1] % crossed:
        return NoLink(assumption=why)
    parts = groups.reshape(-1, groups.shape[1] // crossed)
    if (slices[parts] != slices[parts[:, :1]]).any():
        return NoLink(assumption=why)
    if chip.dcn_bytes_per_second is None:
        return NoLink(assumption=f"{names} crosses slices, and the DCN bandwidth of {chip.title} is unknown")
    link = inside(axes, parts)
    if isinstance(link, NoLink):
        return link
    sentence = (
        f"{names} crosses {crossed} slices over the data center network (DCN), which each device uses with "
        "its share of the host's bandwidth."
    )
    known = link.assumption if link.size > 1 else ""
    rate = chip.dcn_bytes_per_second / chip.devices
    return SliceLink(link, crossed, rate, assumption=" ".join(filter(None, (sentence, known))))


def _assumed_link(
    assumed: Mapping[Axes, TorusLink | NoLink], axes: Axes, groups: np.ndarray
) -> TorusLink | NoLink:
    return assumed[axes]


def _one_slice(mesh: Mesh, slices: np.ndarray) -> Mesh | None:
    """Return the mesh axes inside of one slice; None if the slices are not blocks of the mesh."""
    places = np.flatnonzero(slices == 0)
    stride, sizes = mesh.size, []
    for axis in mesh.axes:
        stride //= axis.size
        sizes.append(len(np.unique(places // stride % axis.size)))
    if math.prod(sizes) != len(places):
        return None
    axes = tuple(MeshAxis(axis.name, size, axis.type) for axis, size in zip(mesh.axes, sizes, strict=True))
    return Mesh(axes, tuple(range(len(places))), topology=mesh.topology)


def _placed_link(
    mesh: Mesh, chip: Chip, torus: Torus, places: TorusPlaces, axes: Axes, groups: np.ndarray
) -> TorusLink:
    names = [axis.name for axis in mesh.axes if axis.name in axes and axis.size > 1]
    if not names or groups.shape[1] == 1:
        return TorusLink((_one_device(torus),))
    shapes = [
        (TorusLink(_rings(shape, chip, torus)), shape)
        for shape in group_shapes(groups, places, in_order=len(names) == 1)
    ]
    link, shape = min(shapes, key=lambda pair: links.effective_bytes_per_second(pair[0]))
    order = mesh.device_order
    known = f" ({order})" if order in ("row-major", "torus") else ""
    sentences = [
        f"The device order{known} puts {mesh_axes_text(names)} ({shape.members}) on {_shape_text(shape)}."
    ]
    if len(shapes) > 1:
        sentences.append("Groups differ in shape; the slowest one is used for all.")
    if chip.devices > 1:
        sentences.append(_shared_by_devices(chip))
    return replace(link, assumption=" ".join(sentences))


def _rings(shape: GroupShape, chip: Chip, torus: Torus) -> tuple[Ring, ...]:
    rate = torus.bytes_per_second / chip.devices
    if shape.line is not None:
        stride, sharing = shape.line
        return (Ring(shape.members, rate / sharing, stride * torus.hop_seconds, wraps=False),)
    return tuple(
        Ring(span.count, rate / span.sharing, span.stride * torus.hop_seconds, span.ring)
        for span in shape.spans
    )


def _shape_text(shape: GroupShape) -> str:
    """Return `y: a ring of 4`, or `x and y: a line of 2 of the 4 chips along x; …`."""
    axes = [span.axis for span in shape.spans if span.axis != CORES]
    where = and_text(axes) if axes else "one chip"
    if shape.line is not None:
        stride, sharing = shape.line
        return (
            f"{where}, but not as a box or in order: modelled as a line of {shape.members}, "
            f"up to {counted(stride, 'link')} from one to the next{_shared_by_groups(sharing)}"
        )
    return f"{where}: {'; '.join(_span_text(span, len(axes) > 1) for span in shape.spans)}"


def _span_text(span: AxisSpan, several: bool) -> str:
    if span.axis == CORES:
        return f"the {span.count} devices of a chip, assumed to be linked like neighboring chips"
    along = f" along {span.axis}" if several else ""
    if span.ring:
        return f"a ring of {span.count}{along}"
    if span.count == span.length:
        return f"a line of {span.count}{along} without wrap-around"
    text = f"a line of {span.count} of the {span.length} chips{along}"
    if span.stride > 1:
        text += f", {span.stride} links from one to the next"
    return text + _shared_by_groups(span.sharing)


def _shared_by_groups(sharing: int) -> str:
    return f", over links that {sharing} groups share" if sharing > 1 else ""


def _shared_by_devices(chip: Chip) -> str:
    return f"The {chip.devices} devices of a chip share its links, so each has 1/{chip.devices}."


def _assumed_links(
    groups: list[Axes], mesh: Mesh, chip: Chip, torus: Torus
) -> dict[Axes, TorusLink | NoLink]:
    chips = math.ceil(mesh.size / chip.devices)
    if chip.pod_chips is not None and chips > chip.pod_chips:
        why = (
            f"{counted(chips, 'chip')} exceed a pod of {chip.title} ({chip.pod_chips:,}), and which mesh "
            "axes cross the network between pods is unknown"
        )
        return {axes: NoLink(assumption=why) for axes in groups}
    placed = _rings_of_make_mesh(mesh, chip, torus)
    if placed is not None:
        return {axes: _link_of_rings(axes, placed, mesh, chip, torus) for axes in groups}
    rings, sentences = {}, {}
    split = sorted((axis for axis in mesh.axes if axis.size > 1), key=lambda axis: -axis.size)
    exclusive = len(split) if len(split) <= torus.axes else torus.axes - 1
    for number, axis in enumerate(split):
        sharing = 1 if number < exclusive else len(split) - exclusive
        folded = axis.size > max(torus.pod)
        wraps = sharing == 1 and (folded or torus.wraps_around(axis.size, chips))
        rate = torus.bytes_per_second / chip.devices / sharing
        rings[axis.name] = Ring(axis.size, rate, torus.hop_seconds, wraps)
        sentences[axis.name] = f"{axis.name} ({axis.size}) {_assumed_text(torus, sharing, folded, wraps)}."
    links: dict[Axes, TorusLink | NoLink] = {}
    for axes in groups:
        used = [name for name in axes if name in rings]
        assumptions = [sentences[name] for name in used]
        if chip.devices > 1:
            assumptions.append(_shared_by_devices(chip))
        links[axes] = TorusLink(
            tuple(rings[name] for name in used) or (_one_device(torus),),
            fastest=2 * torus.axes * torus.bytes_per_second if used else None,
            assumption=" ".join(["Assumed:", *assumptions]) if used else "",
        )
    return links


def _rings_of_make_mesh(mesh: Mesh, chip: Chip, torus: Torus) -> dict[str, tuple[Ring, ...]] | None:
    """Return the rings of each mesh axis on a slice of known shape; None if the axes do not fit.

    As in `jax.experimental.mesh_utils`, the last mesh axis chooses first. Its devices are a product of as
    many torus axes as possible. The devices of a chip are one more axis.
    """
    if mesh.topology is None or math.prod(mesh.topology) * chip.devices != mesh.size:
        return None
    chips, rate = math.prod(mesh.topology), torus.bytes_per_second / chip.devices
    free = [
        Ring(length, rate, torus.hop_seconds, torus.wraps_around(length, chips)) for length in mesh.topology
    ]
    if chip.devices > 1:
        free.append(Ring(chip.devices, rate, torus.hop_seconds, wraps=False))
    rings: dict[str, tuple[Ring, ...]] = {}
    for axis in reversed(mesh.axes):
        if axis.size == 1:
            continue
        choices = (
            chosen
            for count in range(len(free), 0, -1)
            for chosen in itertools.combinations(range(len(free)), count)
            if math.prod(free[at].size for at in chosen) == axis.size
        )
        chosen = next(choices, None)
        if chosen is None:
            return None
        rings[axis.name] = tuple(free[at] for at in chosen if free[at].size > 1)
        free = [ring for at, ring in enumerate(free) if at not in chosen]
    return rings


def _link_of_rings(
    axes: Axes, rings: Mapping[str, tuple[Ring, ...]], mesh: Mesh, chip: Chip, torus: Torus
) -> TorusLink:
    """Return the link of mesh axes that `jax.make_mesh` is assumed to place on these rings."""
    used = [name for name in axes if name in rings]
    if not used:
        return TorusLink((_one_device(torus),))
    lengths = "×".join(map(str, mesh.topology or ()))
    sizes = {name: " × ".join(str(ring.size) for ring in rings[name]) for name in used}
    where = and_text([f"{name} is on {size}" for name, size in sizes.items()])
    assumptions = [f"Assumed: {where} of the {lengths} chips, as jax.make_mesh places it."]
    if chip.devices > 1:
        assumptions.append(_shared_by_devices(chip))
    return TorusLink(
        tuple(ring for name in used for ring in rings[name]),
        fastest=2 * torus.axes * torus.bytes_per_second,
        assumption=" ".join(assumptions),
    )


def _assumed_text(torus: Torus, sharing: int, folded: bool, wraps: bool) -> str:
    if sharing > 1:
        others = counted(sharing - 1, "other mesh axis", "other mesh axes")
        return (
            f"shares a torus axis with {others}, because a torus has {torus.axes}: 1/{sharing} of each "
            "link, without wrap-around"
        )
    if folded:
        return f"exceeds the longest torus axis ({max(torus.pod)}), so it is folded into a ring"
    if wraps:
        return "has its own torus axis, with wrap-around"
    return f"has its own torus axis, without wrap-around (an axis {torus.wrap_rule})"


def _one_device(torus: Torus) -> Ring:
    return Ring(1, torus.bytes_per_second, torus.hop_seconds)


def _node_link(axes: Axes, mesh: Mesh, chip: Chip, nodes: Nodes) -> Link:
    groups = _groups(axes, mesh)
    size = groups.shape[1]
    node = np.sort(groups // nodes.gpus, axis=1)
    spanned_by_group = (np.diff(node, axis=1, prepend=-1) != 0).sum(axis=1)
    spanned = int(spanned_by_group.max())
    members = math.ceil(size / spanned)
    names = mesh_axes_text(axes)
    order = f"devices fill nodes of {nodes.gpus} {chip.title} in mesh order"
    if spanned == 1:
        assumption = f"Assumed: {order}, so that {names} ({size}) stays inside a node."
    else:
        others = nodes.gpus // members
        assumption = (
            f"Assumed: {order}, so that {names} ({size}) spans {spanned} nodes with "
            f"{counted(members, 'GPU')} in each"
            + (f"; {others} groups share the network of a node." if others > 1 else ".")
        )
        if size % spanned or not bool((spanned_by_group == spanned).all()):
            assumption += " Groups differ in shape; the widest one is used for all."
    rates = nodes.bytes_per_second, nodes.node_bytes_per_second, nodes.nccl
    return NodeLink(members, spanned, nodes.gpus, *rates, assumption=assumption)


def _groups(axes: Axes, mesh: Mesh) -> np.ndarray:
    """Return the mesh positions of the groups along these axes, (groups, members)."""
    # NumPy allows 64 dimensions, so the mesh is not reshaped to its axes.
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
