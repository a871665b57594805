"""Shardings in the text of a compiled program, and the same shardings as mesh axes.

XLA writes a sharding as tiles of device ids, `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`, or as axes of
a mesh, `{mesh['data'=2,'model'=4], [{'data'}, {}]}`. Shardy writes
`#sdy.sharding<@mesh, [{"data"}, {}]>`. Ids are positions in the device assignment.

A sharding is kept as parts: each dimension's index is made of digits of a device's place, and a part has the
size and the stride of one digit. So a text of 20 bytes for 131,072 devices needs no list of them.
"""

import functools
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from inspector.hlo import replica_groups, text
from inspector.hlo.replica_groups import IOTA_OF_IDS, MAX_POSITIONS
from inspector.records.snapshot import Shard, Spec
from inspector.text.errors import InvalidInput, shown

_TILES = re.compile(
    r"devices\s*+=\s*+\[([\d,\s]++)\]\s*+(?:<=\s*+\[([\d,\s]++)\]\s*+(?:T\(([\d,\s]++)\))?+|([\d,\s]++))"
)
_SUBGROUPS = re.compile(r"last_tile_dims\s*+=\s*+\{([\w,\s]*+)\}")
_MAXIMAL = re.compile(r"\{\s*+(?:maximal\s++device\s*+=\s*+|maximal_mesh\[device_id=)(\d{1,9})\b")
_WORD = re.compile(r"\{\s*+(replicated|manual|unreduced|unknown)\b")
_NAMED = re.compile(
    rf"\{{\s*+(mesh{text.SQUARE}(?:\s*+,\s*+device_ids\s*+=\s*+\((?:[^()]++|\([^()]*+\))*+\))?+)"
    r"\s*+,?+(.*)\}\s*+\Z",
    re.S,
)
_SDY = re.compile(r"#?sdy\.sharding<\s*+(?:@([\w.$-]++)|@\"([^\"]*+)\"|(mesh<.*?>))\s*+,(.*)>\s*+\Z", re.S)
_SDY_MESH = re.compile(r"mesh<\s*+\[(.*?)\]\s*+(?:,\s*+device_ids\s*+=\s*+\[([\d,\s]*+)\])?+\s*+>", re.S)
_SDY_MESHES = re.compile(r'(?:\b|")([\w.$-]++)"?\s*+=\s*+"?#sdy\.(mesh<.*?>(?=["},\s]|\Z))', re.S)
_SDY_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"\s*=\s*(\d{1,9})')
_ENTRIES = re.compile(r"\s*+\[((?:[^\[\]{}]++|\{[^{}]*+\})*+)\]", re.S)
_ENTRY = re.compile(r"\{([^{}]*+)\}")
_AXIS = re.compile(r"""["']((?:[^"'\\]|\\.)*)["'](?:\s*:\s*\((\d{1,9})\)(\d{1,9}))?""")
_EXTRA = re.compile(r"\b(replicated|unreduced|manual)\s*=\s*\{([^{}]*)\}")


class PlaceDigit(NamedTuple):
    """One digit of the place of a device: `(place // stride) % size`."""

    size: int
    stride: int


@dataclass(frozen=True)
class DeviceOrder:
    """Positions in the device assignment, other than 0, 1, 2 …

    Either `listed` in the text, or the `digits` of an iota such as `[2,4]T(1,0)`, major first.
    """

    listed: tuple[int, ...] | None = None
    digits: tuple[PlaceDigit, ...] = ()

    def positions(self) -> np.ndarray:
        """Return the positions as an array with one dimension, which callers share."""
        return _positions(self)


@dataclass(frozen=True)
class NamedMesh:
    """A mesh in the text of a program.

    Attributes:
      axes: name and size of each mesh axis, major first.
      order: positions in the device assignment in row-major mesh order. None if they are 0, 1, 2 …
    """

    axes: tuple[tuple[str, int], ...]
    order: DeviceOrder | None = None

    @property
    def size(self) -> int:
        return math.prod(size for _, size in self.axes)

    @property
    def strides(self) -> dict[str, int]:
        """The stride of each axis in row-major mesh order."""
        strides, stride = {}, self.size
        for name, size in self.axes:
            stride //= max(1, size)
            strides[name] = stride
        return strides


@dataclass(frozen=True)
class HloSharding:
    """The sharding of one array.

    Attributes:
      dimensions: the parts of each dimension's index, major first. Missing dimensions are not sharded.
      devices: number of devices. None if the text does not say.
      order: position of each place. None if they are the same.
      unreduced, manual: parts on which devices hold partial sums, or different values.
      device: the only device of a maximal sharding.
      open: whether propagation may shard a dimension further.
      problem: why the shards are unknown, as a noun phrase.
      mesh, spec: the mesh that the text names, and the mesh axes of each dimension, also those of size 1.
    """

    dimensions: tuple[tuple[PlaceDigit, ...], ...] = ()
    devices: int | None = None
    order: DeviceOrder | None = None
    unreduced: tuple[PlaceDigit, ...] = ()
    manual: tuple[PlaceDigit, ...] = ()
    device: int | None = None
    problem: str | None = None
    open: bool = False
    mesh: NamedMesh | None = None
    spec: Spec | None = field(default=None, compare=False)

    @property
    def ways(self) -> tuple[int, ...]:
        """The number of parts of each dimension."""
        return tuple(math.prod(part.size for part in parts) for parts in self.dimensions)

    @property
    def parts(self) -> Iterable[PlaceDigit]:
        """All parts of all dimensions."""
        return (part for dimension in (*self.dimensions, self.unreduced, self.manual) for part in dimension)


@functools.lru_cache(maxsize=4096)
def parse(written: str) -> HloSharding:
    """Return the sharding in the text of an attribute `sharding={…}` of one array.

    Raises:
      InvalidInput: the text is not a sharding.
    """
    written = written.strip()
    if match := _MAXIMAL.match(written):
        return HloSharding(device=int(match[1]), devices=1)
    if match := _WORD.match(written):
        return _of_word(match[1])
    if match := _NAMED.match(written):
        return _on_mesh(named_mesh(match[1]), match[2])
    if match := _TILES.search(written):
        return _tiled(written, match)
    raise _invalid(written)


def parse_all(written: str) -> list[str]:
    """Return the text of each array's sharding in the sharding of a tuple, or the text itself."""
    inner = written.strip()
    return text.items(inner) if inner.startswith("{{") else [inner]


def parse_sdy(written: str, meshes: Mapping[str, NamedMesh]) -> HloSharding:
    """Return a sharding that Shardy wrote, such as `#sdy.sharding<@mesh, [{"data"}, {}]>`.

    Args:
      meshes: the meshes of the program by name.

    Raises:
      InvalidInput: the text is not a sharding, or names an unknown mesh.
    """
    match = _SDY.match(written.strip())
    if match is None:
        raise _invalid(written)
    name = match[1] or match[2]
    mesh = sdy_mesh(match[3]) if match[3] else meshes.get(name)
    if mesh is None:
        raise InvalidInput(f"sharding {shown(written)} is on {shown(name)}, which is not a mesh")
    return _on_mesh(mesh, match[4]) if mesh.axes else HloSharding()


def sdy_meshes(written: str) -> dict[str, NamedMesh]:
    """Return the meshes by name in the text of `xla.sdy.meshes`, without those that cannot be read."""
    matches = _SDY_MESHES.finditer(written.replace('\\"', '"'))
    return {match[1]: mesh for match in matches if (mesh := sdy_mesh(match[2])) is not None}


def sdy_mesh(written: str) -> NamedMesh | None:
    """Return the mesh in `mesh<["data"=2, "model"=4]>`, None if it is too large.

    JAX places scalars on a mesh without axes, which means replicated.
    """
    match = _SDY_MESH.search(written)
    axes = tuple((name, int(size)) for name, size in _SDY_AXIS.findall(match[1])) if match else ()
    if match is None or not _is_mesh(axes):
        return None
    order = _listed(match[2], written, math.prod(size for _, size in axes)) if match[2] else None
    return NamedMesh(axes, order)


@functools.lru_cache(maxsize=64)
def named_mesh(written: str) -> NamedMesh:
    """Return the mesh in `mesh['data'=2,'model'=4]`, which can have `device_ids`.

    Raises:
      InvalidInput: the text is not a mesh.
    """
    names, sizes, ids = replica_groups.mesh_of(written)
    order = None
    if ids is not None:
        iota = IOTA_OF_IDS.match(ids)
        if iota is None:
            order = _listed(ids, written, math.prod(sizes))
        else:
            digits = _joined(_iota_digits(iota[1], iota[2], written))
            order = None if len(digits) < 2 else DeviceOrder(digits=digits)
            if math.prod(part.size for part in digits) != math.prod(sizes):
                raise _invalid(written)
    return NamedMesh(tuple(zip(names, sizes, strict=True)), order)


def spec_on(sharding: HloSharding, mesh: NamedMesh, rank: int) -> Spec | None:
    """Return the mesh axes of each dimension. Return None if whole axes of this mesh do not express it."""
    if sharding.problem is not None or sharding.device is not None:
        return None
    given = sharding.dimensions
    if len(given) > rank or sharding.devices not in (None, mesh.size):
        return None
    if sharding.spec is not None and sharding.mesh == mesh:
        return (*sharding.spec, *(None,) * (rank - len(given)))
    if any(parts for parts in given) and (sharding.order is not None or mesh.order is not None):
        spec = _spec_of_places(sharding, mesh)
    else:
        spec = _whole_axes(given, mesh)
    return None if spec is None else (*spec, *(None,) * (rank - len(given)))


def axes_on(parts: Sequence[PlaceDigit], mesh: NamedMesh) -> tuple[str, ...] | None:
    """Return the mesh axes that these parts are, None if they are not whole axes."""
    spec = _whole_axes((tuple(parts),), mesh)
    return None if spec is None else spec[0] or ()


def indices(sharding: HloSharding, rank: int, devices: int) -> np.ndarray:
    """Return (devices, rank): the part of each dimension that each position in the assignment holds."""
    places = np.arange(devices)
    tiles = np.zeros((devices, rank), np.int64)
    for dimension, parts in enumerate(sharding.dimensions):
        for part in parts:
            tiles[:, dimension] *= part.size
            tiles[:, dimension] += places // part.stride % part.size
    if sharding.order is not None:
        by_position = np.empty_like(tiles)
        by_position[sharding.order.positions()] = tiles
        return by_position
    return tiles


def derived_mesh(shardings: Iterable[HloSharding], devices: int) -> NamedMesh | None:
    """Return the smallest mesh whose axes express all shardings, None if no mesh does.

    Its axes have invented names, as in XLA's own meshes: `axis_0`, `axis_1` …
    """
    cuts = {1, devices}
    for sharding in shardings:
        if sharding.devices in (None, devices) and sharding.order is None:
            for part in sharding.parts:
                cuts |= {part.stride, part.stride * part.size}
    marks = sorted(cuts, reverse=True)
    pairs = list(itertools.pairwise(marks))
    if any(big % small for big, small in pairs) or not 1 <= devices <= MAX_POSITIONS:
        return None
    sizes = [big // small for big, small in pairs] or [1]
    return NamedMesh(tuple((f"axis_{number}", size) for number, size in enumerate(sizes)))


def _of_word(word: str) -> HloSharding:
    if word == "replicated":
        return HloSharding()
    reason = {
        "manual": "a manual sharding: each device holds a value of its own",
        "unreduced": "an unreduced sharding: devices hold partial sums",
        "unknown": "an unknown sharding",
    }
    return HloSharding(problem=reason[word])


def _tiled(written: str, match: re.Match[str]) -> HloSharding:
    tiles = _integers(match[1], written)
    count = math.prod(tiles)
    if not 0 < count <= MAX_POSITIONS or len(tiles) > 64:
        raise InvalidInput(
            f"sharding {shown(written)} must have 1 to {MAX_POSITIONS:,} devices in at most 64 dimensions"
        )
    order = None
    if match[2] is None:
        order = _listed(match[4], written, count)
        digits = [PlaceDigit(count, 1)]
    else:
        digits = list(_joined(_iota_digits(match[2], match[3], written)))
        if math.prod(part.size for part in digits) != count:
            raise InvalidInput(f"sharding {shown(written)} does not have one device per tile")
    nested = _nested(tiles, digits)
    if nested is None:  # tiles that cut through a dimension of the iota
        order = DeviceOrder(digits=tuple(digits))
        nested = _nested(tiles, [PlaceDigit(count, 1)]) or []
    kinds = ["replicated"] if "last_tile_dim_replicate" in written else []
    if groups := _SUBGROUPS.search(written):
        kinds = [kind.strip() for kind in groups[1].split(",") if kind.strip()]
    if len(kinds) > len(tiles):
        raise _invalid(written)
    last = len(tiles) - len(kinds)

    def of_kind(kind: str) -> tuple[PlaceDigit, ...]:
        subgroups = zip(nested[last:], kinds, strict=True)
        return tuple(part for parts, given in subgroups if given == kind for part in parts)

    return HloSharding(tuple(nested[:last]), count, order, of_kind("unreduced"), of_kind("manual"))


def _iota_digits(dimensions: str, permutation: str | None, written: str) -> list[PlaceDigit]:
    """Return the digits of an iota in the order of its flattened tiles, major first."""
    sizes = _integers(dimensions, written)
    axes = _integers(permutation, written) if permutation else list(range(len(sizes)))
    if sorted(axes) != list(range(len(sizes))) or not 0 < math.prod(sizes) <= MAX_POSITIONS:
        raise _invalid(written)
    stride, digits = math.prod(sizes), []
    for size in sizes:
        stride //= size
        digits.append(PlaceDigit(size, stride))
    return [digits[axis] for axis in axes]


@functools.lru_cache(maxsize=8)
def _positions(order: DeviceOrder) -> np.ndarray:
    if order.listed is not None:
        return np.array(order.listed, np.int64)
    positions = np.zeros(1, np.int64)
    for part in order.digits:
        positions = (positions[:, None] + np.arange(part.size) * part.stride).reshape(-1)
    return positions


def _nested(tiles: Sequence[int], digits: Sequence[PlaceDigit]) -> list[tuple[PlaceDigit, ...]] | None:
    """Return the parts of each tile dimension. Return None if a tile cuts a digit unevenly."""
    rest = [part for part in digits if part.size > 1]
    dimensions: list[tuple[PlaceDigit, ...]] = []
    for size in reversed(tiles):
        parts: list[PlaceDigit] = []
        while size > 1:
            if not rest:
                return None
            digit = rest.pop()
            if size % digit.size == 0:
                taken = digit
            elif digit.size % size == 0:
                taken = PlaceDigit(size, digit.stride)
                rest.append(PlaceDigit(digit.size // size, digit.stride * size))
            else:
                return None
            parts.append(taken)
            size //= taken.size
        dimensions.append(_joined(reversed(parts)))
    return dimensions[::-1]


def _joined(parts: Iterable[PlaceDigit]) -> tuple[PlaceDigit, ...]:
    """Join neighbors that are one digit."""
    digits: list[PlaceDigit] = []
    for part in parts:
        if digits and digits[-1].stride == part.stride * part.size:
            digits[-1] = PlaceDigit(digits[-1].size * part.size, part.stride)
        else:
            digits.append(part)
    return tuple(digits)


def _whole_axes(dimensions: Sequence[Sequence[PlaceDigit]], mesh: NamedMesh) -> Spec | None:
    """Return whole mesh axes for the parts of each dimension, None if a part is not made of them."""
    axis_at = {
        stride: (name, size)
        for (name, size), stride in zip(mesh.axes, mesh.strides.values(), strict=True)
        if size > 1
    }
    spec: list[tuple[str, ...] | None] = []
    for parts in dimensions:
        names: list[str] = []
        for size, stride in reversed(parts):
            while size > 1:
                name, length = axis_at.get(stride, ("", 0))
                if not length or size % length:
                    return None
                names.append(name)
                size //= length
                stride *= length
        spec.append(tuple(reversed(names)) or None)
    return tuple(spec)


def _spec_of_places(sharding: HloSharding, mesh: NamedMesh) -> Spec | None:
    """Return the mesh axes for devices in any order, by comparing every device."""
    rank = len(sharding.dimensions)
    tiles = indices(sharding, rank, mesh.size)
    if mesh.order is not None:
        tiles = tiles[mesh.order.positions()]
    if tiles[0].any():
        return None
    places, strides = np.arange(mesh.size), mesh.strides
    spec: list[tuple[str, ...] | None] = []
    for dimension in range(rank):
        column = tiles[:, dimension]
        steps = {
            name: int(column[strides[name]]) for name, size in mesh.axes if size > 1 and column[strides[name]]
        }
        expected = np.zeros(mesh.size, np.int64)
        for name, step in steps.items():
            expected += places // strides[name] % dict(mesh.axes)[name] * step
        if not np.array_equal(expected, column):
            return None
        spec.append(tuple(sorted(steps, key=lambda name: -steps[name])) or None)
    return tuple(spec)


def _on_mesh(mesh: NamedMesh, rest: str) -> HloSharding:
    """Return the sharding over the axes of a mesh. `rest` follows the mesh in the text."""
    entries = _ENTRIES.match(rest)
    whole = rest.strip().lstrip(",").strip()
    for word in ("manual", "unreduced"):
        if entries is None and whole.startswith(word) and not _EXTRA.match(whole):
            parts = tuple(_part(mesh, name, None, None) for name, _ in mesh.axes)
            if word == "unreduced":
                return HloSharding((), mesh.size, mesh.order, unreduced=parts, mesh=mesh, spec=())
            return HloSharding(problem=_of_word(word).problem, mesh=mesh)
    written = _ENTRY.findall(entries[1]) if entries else []
    axes = [_AXIS.findall(entry) for entry in written]
    extra = {kind: _AXIS.findall(names) for kind, names in _EXTRA.findall(rest)}
    dimensions = tuple(_joined(_part(mesh, *axis) for axis in entry) for entry in axes)
    is_whole = all(not size for entry in axes for _, _, size in entry)
    return HloSharding(
        dimensions,
        mesh.size,
        mesh.order,
        tuple(_part(mesh, *axis) for axis in extra.get("unreduced", ())),
        tuple(_part(mesh, *axis) for axis in extra.get("manual", ())),
        open=any("?" in entry for entry in written),
        mesh=mesh,
        spec=tuple(tuple(name for name, _, _ in entry) or None for entry in axes) if is_whole else None,
    )


def _part(mesh: NamedMesh, name: str, before: str | None, size: str | None) -> PlaceDigit:
    sizes = dict(mesh.axes)
    if name not in sizes:
        raise InvalidInput(
            f"a sharding names the mesh axis {shown(name)}, but the mesh has {', '.join(sizes)}"
        )
    stride = mesh.strides[name]
    if not size:
        return PlaceDigit(sizes[name], stride)
    pre, own = int(before or 1), int(size)
    if pre < 1 or own < 1 or sizes[name] % (pre * own):
        raise InvalidInput(f"a sharding has the part ({pre}){own} of the mesh axis {shown(name)}")
    return PlaceDigit(own, stride * (sizes[name] // (pre * own)))


def _is_mesh(axes: Sequence[tuple[str, int]]) -> bool:
    size = math.prod(size for _, size in axes)
    return 0 < size <= MAX_POSITIONS and len(dict(axes)) == len(axes) <= 64


def _listed(ids: str, written: str, count: int) -> DeviceOrder | None:
    """Return the listed positions, None if they are 0, 1, 2 …"""
    order = tuple(_integers(ids, written))
    if sorted(order) != list(range(count)):
        raise InvalidInput(f"sharding {shown(written)} must have each of the devices 0 to {count - 1} once")
    return None if order == tuple(range(count)) else DeviceOrder(order)


def _integers(written: str, whole: str) -> list[int]:
    numbers = [part.strip() for part in written.split(",")]
    if not all(number.isdecimal() and len(number) <= 9 for number in numbers):
        raise _invalid(whole)
    return [int(number) for number in numbers]


def _invalid(written: str) -> InvalidInput:
    return InvalidInput(
        f"sharding is {shown(written)}, but must be text such as {{devices=[2,4]<=[8]}}, "
        "{replicated} or {mesh['data'=2], [{'data'}]}"
    )


def shards_of(
    sharding: HloSharding,
    shape: tuple[int, ...],
    devices: Sequence[int],
    positions: Sequence[int] | None = None,
) -> tuple[Shard, ...]:
    """Return the shard of each device in mesh order. XLA pads the last shard of an uneven dimension.

    Args:
      devices: the ids of the mesh's devices in mesh order.
      positions: the position of each in the device assignment; None if they are 0, 1, 2 …
    """
    rank = len(shape)
    tiles = indices(sharding, rank, len(devices))
    ways = (*sharding.ways, *(1,) * rank)
    pieces = [-(-size // n) for size, n in zip(shape, ways, strict=False)]
    seen: dict[tuple[int, ...], int] = {}
    shards = []
    for device, position in zip(devices, positions or range(len(devices)), strict=True):
        block = tuple(tiles[position].tolist())
        index = tuple(
            (min(at * piece, size), min((at + 1) * piece, size))
            for at, piece, size in zip(block, pieces, shape, strict=True)
        )
        seen[block] = seen.get(block, -1) + 1
        shards.append(Shard(device, index, seen[block]))
    return tuple(shards)
