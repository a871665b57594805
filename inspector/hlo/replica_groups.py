"""Replica groups and source-target pairs of collectives: their text forms, and the meaning of their ids.

An id is a position in the device assignment, which is the row-major order of the mesh's devices. It
is not a device id.
"""

import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from inspector.hlo.text import SQUARE
from inspector.records.snapshot import Mesh
from inspector.sharding.meshes import primes_of, slices_of
from inspector.text.errors import InvalidInput, shown

# Positions that communicate. An empty tuple means one group of all devices.
Groups = tuple[tuple[int, ...], ...]
Mode = Literal["cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id"]

# A limit for hostile text: twice the chips of the largest published training run.
MAX_POSITIONS = 2**17

_IOTA = re.compile(r"\[([\d,\s]++)\]\s*+<=\s*+\[([\d,\s]++)\]\s*+(?:T\(([\d,\s]++)\))?+\s*+\Z")
# The `device_ids` of a mesh, such as `[2,4]T(1,0)`.
IOTA_OF_IDS = re.compile(r"\s*+\[([\d,\s]++)\]\s*+(?:T\(([\d,\s]++)\))?+\s*+\Z")
_LIST = re.compile(r"\{(?:\s*+\{[\d,\s]*+\}\s*+,?+)*+\s*+\}\s*+\Z")
_LIST_GROUP = re.compile(r"\{([\d,\s]*+)\}")
_MESH = re.compile(
    rf"mesh({SQUARE})\s*+(?:,\s*+device_ids\s*+=\s*+\(((?:[^()]++|\([^()]*+\))*+)\)\s*+)?+"
    r"\{([^{}]*+)\}\s*+\Z"
)
_MESH_AXIS = re.compile(r"\s*+'([^']*+)'\s*+=\s*+(\d{1,18})\s*+(?:,|\Z)")
_INNER_IDS = re.compile(r"\s*+device_ids\s*+=\s*+\((.*)\)\s*+\Z", re.S)
_AXIS = re.compile(r"\s*+'([^']*+)'\s*+(?::\s*+\((\d{1,18})\)\s*+(\d{1,18})\s*+)?+(?:,|\Z)")
_IDS = re.compile(r"[\d,\s]*+\Z")


class Room:
    """Bounds the positions that the groups of one file are expanded to, and those that are kept.

    A text of 100 bytes can name 131,072 devices, which take 36 bytes each. Groups of whole mesh axes are not
    kept, so a program of 8,960 devices has room for 468 others.
    """

    def __init__(self, expand: int = 2**24, keep: int = 2**22) -> None:
        self._expand = expand
        self._keep = keep
        self._seen: set[str] = set()

    def may_expand(self, text: str) -> bool:
        """Return whether groups may be expanded."""
        return text in self._seen or self._expand > 0

    def expanded(self, text: str, positions: int) -> None:
        """Count the positions of expanded groups, once for each text."""
        if text not in self._seen:
            self._seen.add(text)
            self._expand -= positions

    def keeps(self, groups: Groups | None) -> bool:
        """Return whether a collective may keep these groups or pairs, and count their positions."""
        if groups is None:
            return True
        self._keep -= sum(map(len, groups))
        return self._keep >= 0


def written_shape(text: str) -> tuple[int, int] | None:
    """Return the number of groups and the devices of a group in `[2,4]<=[8]`. None for another form."""
    match = _IOTA.match(text.strip())
    shape = _integers(match[1], text) if match else []
    return (shape[0], shape[1]) if len(shape) == 2 and math.prod(shape) <= MAX_POSITIONS else None


@functools.lru_cache(maxsize=64)
def expand(text: str) -> Groups:
    """Return the groups in `{{0,1},{2,3}}`, `[2,2]<=[4]` or `mesh['a'=2,'b'=2] {'b'}`.

    Raise InvalidInput for another text.
    """
    text = text.strip()
    if text.startswith("mesh"):
        groups = _mesh(text)
    elif text.startswith("["):
        groups = _iota_groups(text)
    elif _LIST.match(text):
        groups = _listed(text)
    else:
        raise InvalidInput(
            f"replica_groups is {shown(text)}, but must be a list such as {{{{0,1}},{{2,3}}}}, "
            "an iota such as [2,2]<=[4], or the axes of a mesh such as mesh['a'=2,'b'=2] {'b'}"
        )
    named = [position for group in groups for position in group]
    if len(named) > MAX_POSITIONS:
        raise _invalid(text, f"names more than {MAX_POSITIONS} devices")
    if len(set(named)) != len(named):
        raise _invalid(text, "names a device twice, but may only once")
    return groups


@functools.lru_cache(maxsize=64)
def pairs(text: str) -> Groups:
    """Return the (source, target) ids of a collective-permute, or raise InvalidInput."""
    text = text.strip()
    listed = _listed(text) if _LIST.match(text) else None
    if listed is None or any(len(pair) != 2 for pair in listed):
        raise InvalidInput(
            f"source_target_pairs is {shown(text)}, but must be a list such as {{{{0,1}},{{1,0}}}}"
        )
    return listed


def _listed(text: str) -> Groups:
    return tuple(tuple(_integers(group[1], text)) for group in _LIST_GROUP.finditer(text[1:-1]))


def _invalid(text: str, what: str) -> InvalidInput:
    return InvalidInput(f"replica_groups {shown(text)} {what}")


def mode(has_channel: bool, use_global_device_ids: bool | None) -> Mode:
    """Return XLA's CollectiveOpGroupMode, the meaning of the ids.

    use_global_device_ids: None for operations without this attribute. If true without a channel, raise
    InvalidInput.
    """
    if not has_channel:
        if use_global_device_ids:
            raise InvalidInput("use_global_device_ids is true, but must be false without a channel_id")
        return "cross_replica"
    if use_global_device_ids is None:
        return "cross_partition"
    return "flattened_id" if use_global_device_ids else "cross_replica_and_partition"


def participants(groups: Groups, mode: Mode, replicas: int, partitions: int) -> Groups:
    """Return the groups as positions, replica × partitions + partition; no groups means all devices.

    Raise InvalidInput for more than `MAX_POSITIONS` devices, and for no groups of global ids.
    """
    if not 0 < replicas * partitions <= MAX_POSITIONS:
        raise InvalidInput(
            f"the program runs on {replicas} replicas of {partitions} partitions, "
            f"but must run on 1 to {MAX_POSITIONS} devices"
        )
    # Each device occurs at most once in groups, and at most twice in pairs.
    factor = {"cross_partition": replicas, "flattened_id": 1}.get(mode, partitions)
    if factor * sum(map(len, groups)) > 2 * MAX_POSITIONS:
        raise InvalidInput(f"replica_groups or pairs contain more than {2 * MAX_POSITIONS} positions")
    if mode == "flattened_id":
        if not groups:
            raise InvalidInput(
                "replica_groups is empty, but must have groups if use_global_device_ids is true"
            )
        return groups
    replica_ids, partition_ids = range(replicas), range(partitions)
    # Each group is the product of some replicas and some partitions.
    parts: list[tuple[Sequence[int], Sequence[int]]]
    if mode == "cross_partition":
        parts = [((r,), group) for r in replica_ids for group in groups or (partition_ids,)]
    elif mode == "cross_replica":
        parts = [(group, (p,)) for group in groups or (replica_ids,) for p in partition_ids]
    else:
        parts = [(group, partition_ids) for group in groups or (replica_ids,)]
    return tuple(
        tuple(replica * partitions + partition for replica in some for partition in others)
        for some, others in parts
    )


def connected(moves: Groups) -> Groups:
    """Return the connected components of the (source, target) pairs."""
    group_of = {at: at for pair in moves for at in pair}

    def first(at: int) -> int:
        while group_of[at] != at:
            group_of[at] = group_of[group_of[at]]
            at = group_of[at]
        return at

    for source, target in moves:
        low, high = sorted((first(source), first(target)))
        group_of[high] = low
    members: dict[int, list[int]] = {}
    for at in sorted(group_of):
        members.setdefault(first(at), []).append(at)
    return tuple(map(tuple, members.values()))


def _iota_groups(text: str) -> Groups:
    match = _IOTA.match(text)
    shape = _integers(match[1], text) if match else []
    if match is None or len(shape) != 2:
        raise InvalidInput(f"replica_groups is {shown(text)}, but must be an iota such as [2,2]<=[4]")
    ids = _iota(match[2], match[3], text)
    if math.prod(shape) != ids.size:
        raise _invalid(text, f"has {ids.size} devices, but its groups have {math.prod(shape)}")
    return tuple(map(tuple, ids.reshape(shape).tolist()))


def _iota(dimensions: str, permutation: str | None, text: str) -> np.ndarray:
    """Return 0, 1, 2 … reshaped to these dimensions, transposed and flattened."""
    sizes = _integers(dimensions, text)
    if not 0 < math.prod(sizes) <= MAX_POSITIONS or len(sizes) > 32:
        raise _invalid(
            text,
            f"has an iota of {shown(dimensions)}, "
            f"but must have 1 to {MAX_POSITIONS} devices in at most 32 dimensions",
        )
    order = _integers(permutation, text) if permutation else list(range(len(sizes)))
    if sorted(order) != list(range(len(sizes))):
        raise _invalid(text, f"has T({permutation}), but must have each of {len(sizes)} dimensions once")
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(order).reshape(-1)


def mesh_of(text: str) -> tuple[list[str], list[int], str | None]:
    """Return the axis names, the sizes and the `device_ids` of a mesh such as `mesh['a'=2,'b'=2]`.

    Ids are text such as `1,0` or `[2,4]T(1,0)`, None if there are none.

    Raises:
      InvalidInput: the text is not a mesh.
    """
    match = _MESH.match(f"{text.strip()} {{}}")
    if match is None:
        raise InvalidInput(f"mesh is {shown(text)}, but must be text such as mesh['a'=2,'b'=2]")
    names, sizes, inner_ids = _mesh_axes(match[1][1:-1], text)
    return names, sizes, inner_ids if match[2] is None else match[2]


def _mesh(text: str) -> Groups:
    match = _MESH.match(text)
    if match is None:
        raise InvalidInput(
            f"replica_groups is {shown(text)}, but must be a mesh such as mesh['a'=2,'b'=2] {{'b'}}"
        )
    names, sizes, inner_ids = _mesh_axes(match[1][1:-1], text)
    ids = _device_ids(inner_ids if match[2] is None else match[2], math.prod(sizes), text)

    # The place in the mesh has a digit for each axis or sub-axis. The other digits number the groups.
    places, strides = np.arange(ids.size), [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    group, member, members = places, np.zeros_like(places), 1
    for axis, before, size in _named_axes(match[3], names, sizes, text):
        stride = strides[axis] * (sizes[axis] // (before * size))
        digit = places // stride % size
        group, member, members = group - digit * stride, member * size + digit, members * size
    order = np.lexsort((member, group))
    apart = np.diff(group[order])[places[1:] % members > 0]  # of neighbors in a group
    if apart.any() or not np.array_equal(member[order], places % members):
        raise _invalid(text, "names a part of an axis twice, or parts that do not divide one another")
    return tuple(map(tuple, ids[order].reshape(-1, members).tolist()))


def _mesh_axes(inner: str, text: str) -> tuple[list[str], list[int], str | None]:
    names, sizes, at = [], [], 0
    while axis := _MESH_AXIS.match(inner, at):
        names.append(axis[1])
        sizes.append(int(axis[2]))
        at = axis.end()
    ids = _INNER_IDS.match(inner, at)
    if ids is None and inner[at:].strip():
        raise _invalid(
            text, f"has {shown(inner[at:])} in its mesh, but must have axes such as 'a'=2, and device_ids"
        )
    if len(set(names)) != len(names):
        raise _invalid(text, "has two axes of one name")
    if not 0 < math.prod(sizes) <= MAX_POSITIONS or len(sizes) > 32:
        raise _invalid(
            text,
            f"has a mesh that is too large or empty: it must have 1 to {MAX_POSITIONS} devices on at "
            "most 32 axes",
        )
    return names, sizes, ids[1] if ids else None


def _device_ids(written: str | None, count: int, text: str) -> np.ndarray:
    if written is None:
        return np.arange(count)
    iota = IOTA_OF_IDS.match(written)
    if iota:
        ids = _iota(iota[1], iota[2], text)
    elif _IDS.match(written):
        ids = np.array(_integers(written, text), dtype=np.int64)
    else:
        raise _invalid(
            text,
            f"has device_ids {shown(written)}, but must have ids such as 1,0 or an iota such as [2,4]T(1,0)",
        )
    if ids.size != count:
        raise _invalid(text, f"has {ids.size} device_ids, but must have one for each of {count} devices")
    return ids


def _named_axes(inner: str, names: list[str], sizes: list[int], text: str) -> list[tuple[int, int, int]]:
    """Return (axis, product of the parts before, size) of each axis or sub-axis, in text order."""
    axes, at = [], 0
    while at < len(inner.rstrip()):
        match = _AXIS.match(inner, at)
        if match is None:
            raise _invalid(
                text,
                f"has {shown(inner[at:])} among its axes, but must have names such as 'a', or parts such as "
                "'a':(1)2",
            )
        axis = _axis_number(match[1], names, text)
        before, size = int(match[2] or 1), int(match[3] or sizes[axis])
        if before < 1 or size < 1 or sizes[axis] % (before * size):
            raise _invalid(
                text,
                f"has the part ({before}){size} of the axis {shown(match[1])}, but its size {sizes[axis]} "
                "must be a multiple of their product",
            )
        axes.append((axis, before, size))
        at = match.end()
    return axes


def _axis_number(name: str, names: list[str], text: str) -> int:
    if name in names:
        return names.index(name)
    if not (name.isascii() and name.isdecimal()):
        raise InvalidInput(
            f"replica_groups {shown(text)}: {shown(name)} is not a valid axis name or index, "
            f"but must be one of {', '.join(map(shown, names))}"
        )
    if len(name) > 2 or int(name) >= len(names):
        raise InvalidInput(
            f"replica_groups {shown(text)}: axis {name} is out of bounds for mesh axes 0 to {len(names) - 1}"
        )
    return int(name)


def _integers(written: str, text: str) -> list[int]:
    numbers = [part.strip() for part in written.split(",")] if written.strip() else []
    if not all(number.isdecimal() and len(number) <= 18 for number in numbers):
        raise InvalidInput(f"replica_groups is {shown(text)}, but must have integers between its commas")
    return [int(number) for number in numbers]


# The mesh axes that form groups of devices, and the groups of a program that runs on several TPU slices.
#
# Groups contain positions in the device assignment, which is the row-major order of the mesh's devices.


def in_each_slice(groups: Groups, devices: int, mesh: Mesh) -> Groups:
    """Return the groups of all slices, if the program is that of one slice; else the groups unchanged.

    XLA compiles one program for all slices. Its positions number the devices of a slice in mesh order.

    Args:
      groups: groups or pairs with positions below `devices`.
      devices: the number of devices of the program.
    """
    slices = slices_of(mesh)
    if slices is None or devices * (int(slices.max()) + 1) != mesh.size:
        return groups
    return _in_each_slice(groups, tuple(slices.tolist()))


@functools.lru_cache(maxsize=64)
def _in_each_slice(groups: Groups, slices: tuple[int, ...]) -> Groups:
    order = np.argsort(np.array(slices), kind="stable").reshape(max(slices) + 1, -1).tolist()
    if max((max(group, default=0) for group in groups), default=0) >= len(order[0]):
        return groups
    return tuple(tuple(own[position] for position in group) for own in order for group in groups)


def axes_of_groups(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes, in mesh order, whose product forms exactly these groups; None if there are none.

    Axes of size 1 are omitted. Groups of one device are formed by no axes: ().
    """
    numbers = numbers_of_groups(groups, mesh.shape)
    return None if numbers is None else tuple(mesh.axis_names[number] for number in numbers)


def axes_of_pairs(pairs: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes along which a source and its target differ; None if one is not on the mesh."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    if ends.size and ends.max() >= mesh.size:
        return None
    source, target = (np.array(np.unravel_index(side, mesh.shape)) for side in ends.T)
    differs = (source != target).any(axis=1)
    return tuple(name for name, moved in zip(mesh.axis_names, differs, strict=True) if moved)


def parts_of_axes(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the parts of mesh axes that form exactly these groups, as Shardy writes them; None without any.

    `data:(2)4` are the four parts of each half of `data`. Whole axes are names.
    """
    factors = [(name, factor) for name in mesh.axis_names for factor in primes_of(mesh.sizes[name])]
    numbers = numbers_of_groups(groups, tuple(factor for _, factor in factors))
    if not numbers:
        return None
    parts: list[str] = []
    for name in mesh.axis_names:
        own = [number for number, (axis, _) in enumerate(factors) if axis == name]
        for first, count in _runs([number in numbers for number in own]):
            before = math.prod(factors[number][1] for number in own[:first])
            size = math.prod(factors[number][1] for number in own[first : first + count])
            parts.append(name if size == mesh.sizes[name] else f"{name}:({before}){size}")
    return tuple(parts)


def _runs(chosen: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first place and the number of neighbors that are chosen."""
    for is_chosen, places in itertools.groupby(range(len(chosen)), key=chosen.__getitem__):
        if is_chosen:
            listed = list(places)
            yield listed[0], len(listed)


@functools.lru_cache(maxsize=64)
def numbers_of_groups(groups: Groups, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of a mesh of this shape that form exactly these groups, by number; None without any."""
    positions = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    named = np.array([position for group in groups for position in group], dtype=np.int64)
    if not np.array_equal(np.sort(named), positions.reshape(-1)):
        return None
    first = np.empty(named.size, dtype=np.int64)  # lowest position in the group of each position
    sizes = [len(group) for group in groups]
    first[named] = np.repeat([min(group) for group in groups if group], [n for n in sizes if n])
    with_zero = np.flatnonzero(first == first[0])
    coordinates = np.array(np.unravel_index(with_zero, shape)).reshape(len(shape), -1)
    axes = tuple(np.flatnonzero((coordinates > 0).any(axis=1)).tolist())
    # In groups along these axes, the lowest position is that with index 0 along all of them.
    at_zero = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(len(shape)))
    expected = np.broadcast_to(positions[at_zero], shape).reshape(-1)
    return axes if np.array_equal(first, expected) else None


def axes_of_parts(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes along which the devices of a group differ, if an axis crosses TPU slices.

    The compiler splits the groups of such an axis into parts inside of each slice, and parts between slices.
    Return None for one slice, for groups that do not contain every device once, or if several groups of the
    same slice are along the same part of the axes.
    """
    slices = slices_of(mesh)
    members = _members(groups)
    if slices is None or members is None:
        return None
    if not np.array_equal(np.sort(members, axis=None), np.arange(mesh.size)):
        return None
    indices = np.array(np.unravel_index(members, mesh.shape))  # (axes, groups, members)
    varies = (indices != indices[:, :, :1]).any(axis=(1, 2))
    if (slices[members] == slices[members[:, :1]]).all():
        keys = np.vstack((indices[~varies][:, :, 0], slices[members[:, 0]]))
        if len(np.unique(keys, axis=1).T) != len(groups):
            return None
    return tuple(name for name, moved in zip(mesh.axis_names, varies, strict=True) if moved)


def _members(groups: Sequence[Sequence[int]]) -> np.ndarray | None:
    """Return (groups, members), or None if groups differ in size."""
    if not groups or len({len(group) for group in groups}) != 1 or not groups[0]:
        return None
    return np.array(groups, dtype=np.int64)
