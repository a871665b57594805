"""An array cut into its blocks, as rows and columns. `block_map` draws the result.

An array of more than two dimensions is laid out by those that are split: nested, the outer ones separated
by gaps. The other dimensions are left whole, or sliced at an index.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

import cachetools
import numpy as np

from inspector.figures import mesh_layout
from inspector.records.snapshot import Array, Mesh
from inspector.sharding import placement as sharding
from inspector.sharding.placement import Placement
from inspector.sharding.sharding_text import inside_shard_map
from inspector.text import formatting

_REMEMBERED = 32  # placements; one of an array on 100,000 devices takes about 5 MB

Pieces = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class PlacedArray:
    """An array with its placement on a mesh, from which all figures of the array are drawn."""

    array: Array
    mesh: Mesh
    placement: Placement

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        assert self.array.shape is not None  # an array without a shape has no placement
        return self.array.shape

    @functools.cached_property
    def cuts(self) -> list[Pieces]:
        """The pieces of each dimension: half-open ranges between neighboring borders of shards."""
        cuts = []
        for dimension, size in enumerate(self.shape):
            starts, stops = self.placement.starts[:, dimension], self.placement.stops[:, dimension]
            borders = np.unique(np.concatenate([starts, stops, [0, size]])).tolist()
            cuts.append(tuple(itertools.pairwise(borders)))
        return cuts

    @functools.cached_property
    def split(self) -> tuple[int, ...]:
        """The dimensions with more than one piece."""
        return tuple(number for number, pieces in enumerate(self.cuts) if len(pieces) > 1)

    @functools.cached_property
    def holders(self) -> tuple[tuple[int, ...], ...]:
        """For each block, the devices that hold it, in mesh order."""
        return tuple(sharding.devices_by_block(self.placement, self.mesh))

    @functools.cached_property
    def first(self) -> np.ndarray:
        """(blocks,) the position in mesh order of the first device that holds each block."""
        return np.unique(self.placement.block, return_index=True)[1]

    @functools.cached_property
    def why_no_map(self) -> str:
        """The reason why there is no shard map, as a sentence; empty if the array has a map."""
        path, blocks, most = self.array.path, self.placement.blocks, mesh_layout.MOST_CELLS
        if blocks > most:
            return f"{path} has {blocks:,} blocks. A map shows at most {most:,}."
        folded = mesh_layout.folded_axes(self.mesh, [self.placement.block])
        count = mesh_layout.cell_count(self.mesh, folded)
        if count > most:
            return f"{path} changes along mesh axes of {count:,} devices. A map shows at most {most:,}."
        # Only explicit shards can overlap: a spec cuts every dimension cleanly.
        if self.array.shards is not None and self._overlap():
            return f"{path} has blocks that overlap without being equal, so it has no map."
        return ""

    def _overlap(self) -> bool:
        starts, stops = self.placement.starts[self.first], self.placement.stops[self.first]
        lower = np.maximum(starts[:, None], starts[None])
        upper = np.minimum(stops[:, None], stops[None])
        shared = np.all(lower < upper, axis=-1)
        return bool(np.any(shared & ~np.eye(len(self.first), dtype=bool)))


def placed(array: Array, mesh: Mesh) -> PlacedArray | None:
    """Place an array on the mesh, once for all figures; None if its placement is unknown or invalid."""
    return _placed(array, mesh)[2]


@cachetools.cached(cachetools.LRUCache(_REMEMBERED), lambda *records: tuple(map(id, records)), Lock())
def _placed(array: Array, mesh: Mesh) -> tuple[Array, Mesh, PlacedArray | None]:
    """Return also both records: as long as the cache holds them, no other one has their id."""
    placement = None if _why_invalid(array, mesh) else sharding.place_array(array, mesh)
    return array, mesh, None if placement is None else PlacedArray(array, mesh, placement)


def _why_invalid(array: Array, mesh: Mesh) -> str:
    if array.shape is None:
        return f"The shape of {array.path} is unknown, so it has no map."
    if math.prod(array.shape) <= 0:
        return f"{array.path} has no elements: its shape is {formatting.shape_text(array.shape)}."
    if not mesh_layout.has_devices(mesh):
        return "The devices of the mesh are unknown."
    if array.shards is None and array.spec is not None:
        if len(array.spec) != len(array.shape):
            return (
                f"{array.path} has {formatting.counted(len(array.shape), 'dimension')}, "
                f"and its PartitionSpec {len(array.spec)}."
            )
        named = {name for axes in array.spec for name in axes or ()}
        if missing := sorted(named - set(mesh.axis_names)):
            return f"{array.path} is split over {', '.join(missing)}, which the mesh does not have."
    return ""


def why_no_map(array: Array, mesh: Mesh) -> str | None:
    """Return the reason why this array has no shard map, as a sentence; None if a map exists."""
    if reason := _why_invalid(array, mesh):
        return reason
    on_mesh = placed(array, mesh)
    if on_mesh is not None:
        return on_mesh.why_no_map or None
    if array.shards is not None:
        return f"{array.path} has no shard on some devices of the mesh, so it has no map."
    if array.spec is None:
        return (
            inside_shard_map(array)
            or f"The placement of {array.path} is unknown: no PartitionSpec and no list of shards."
        )
    assert array.shape is not None  # checked by `_why_invalid`
    uneven = next(sharding.indivisible(array.shape, array.spec, mesh))
    return f"{array.path} cannot be split evenly: {uneven.text()}."


def split_dimensions(array: Array, mesh: Mesh) -> tuple[int, ...]:
    """Return the dimensions that are split on the mesh; () if the placement is unknown."""
    on_mesh = placed(array, mesh)
    return () if on_mesh is None else on_mesh.split


@dataclass(frozen=True)
class GridSide:
    """The dimensions along one side of a BlockGrid, outer first, and the pieces of each."""

    dimensions: tuple[int, ...]
    cuts: tuple[Pieces, ...]

    @property
    def slots(self) -> int:
        return math.prod(map(len, self.cuts))

    @property
    def borders(self) -> list[int]:
        """The borders of the pieces of the outer dimension; none of a side without dimensions."""
        return [0, *(stop for _, stop in self.cuts[0])] if self.cuts else []


@dataclass(frozen=True)
class BlockGrid:
    """An array in rows and columns of blocks.

    block: (rows, columns) the number of the block in each cell, −1 if no device holds it.
    holders: for each block, the devices that hold it, in mesh order.
    whole: dimensions that are neither laid out nor sliced, because they are not split.
    at: the index of each sliced dimension.
    """

    rows: GridSide
    columns: GridSide
    block: np.ndarray
    holders: tuple[tuple[int, ...], ...]
    whole: tuple[int, ...]
    at: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Arrangement:
    """The arrangement of the dimensions of an array.

    Attributes:
      rows, columns: the dimensions along each side, outer first. By default the split dimensions,
        alternating between the sides, then the last other ones.
      at: (dimension, index) of each dimension to slice, which neither side has. A split dimension that
        is neither laid out nor given here is sliced at 0.
    """

    rows: tuple[int, ...] | None = None
    columns: tuple[int, ...] | None = None
    at: tuple[tuple[int, int], ...] = ()


BY_DEFAULT = Arrangement()


def block_grid(array: Array, mesh: Mesh, arrangement: Arrangement = BY_DEFAULT) -> BlockGrid | None:
    """Cut the array into rows and columns of blocks; return None if `why_no_map` has a reason."""
    on_mesh = placed(array, mesh)
    if on_mesh is None or on_mesh.why_no_map:
        return None
    sliced = dict(arrangement.at)
    rank = len(on_mesh.shape)
    rows, columns = arrangement.rows, arrangement.columns
    if rows is None and columns is None:
        rows, columns = _arrange(on_mesh.split, rank, sliced)
    rows, columns = rows or (), columns or ()
    laid_out = (*rows, *columns)
    for dimension in on_mesh.split:
        if dimension not in laid_out:
            sliced.setdefault(dimension, 0)
    row_side, column_side = (
        GridSide(dimensions, tuple(on_mesh.cuts[dimension] for dimension in dimensions))
        for dimensions in (rows, columns)
    )
    return BlockGrid(
        row_side,
        column_side,
        _blocks(on_mesh, row_side, column_side, sliced),
        on_mesh.holders,
        tuple(number for number in range(rank) if number not in laid_out and number not in sliced),
        sliced,
    )


def _arrange(
    split: Sequence[int], rank: int, sliced: Mapping[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose the dimensions of both sides: every split one, and the last others to make two."""
    free = [dimension for dimension in range(rank) if dimension not in sliced]
    chosen = [dimension for dimension in free if dimension in split]
    others = [dimension for dimension in reversed(free) if dimension not in split]
    return mesh_layout.alternate(sorted(chosen + others[: max(2 - len(chosen), 0)]))


def _blocks(on_mesh: PlacedArray, rows: GridSide, columns: GridSide, sliced: Mapping[int, int]) -> np.ndarray:
    """Return (row slots, column slots): the number of the block in each cell."""
    dimensions, cuts = rows.dimensions + columns.dimensions, on_mesh.cuts
    grid = np.full(tuple(len(cuts[dimension]) for dimension in dimensions), -1, dtype=np.int64)
    starts, stops = on_mesh.placement.starts[on_mesh.first], on_mesh.placement.stops[on_mesh.first]
    drawn = np.ones(len(starts), dtype=bool)
    for dimension, index in sliced.items():
        drawn &= (starts[:, dimension] <= index) & (index < stops[:, dimension])
    numbers = np.flatnonzero(drawn)
    borders = {number: [start for start, _ in cuts[number]] for number in dimensions}
    # For each dimension, the first slot of each block and the one after its last.
    low, high = (
        [np.searchsorted(borders[d], side[numbers, d]).tolist() for d in dimensions]
        for side in (starts, stops)
    )
    for place, number in enumerate(numbers.tolist()):
        window = (slice(start[place], end[place]) for start, end in zip(low, high, strict=True))
        grid[tuple(window)] = number
    return grid.reshape(rows.slots, columns.slots)
