"""The bytes that a layout must send for the matrix products and the sums of a program, at least.

The program gives logical axes to the operands and results of its products, so the sharding of each is known.
A mesh axis can share the work of a product by one of its dimensions. An operand that is sharded over this
axis in another dimension must then be gathered or exchanged, and a contraction ends with a reduction. If the
axis shares no dimension, the devices along it repeat the work. The cheapest of these is the least that the
product costs on this axis. If two of the three arrays have the axis in one dimension, and the third has it
in no other one or is the smallest, XLA's partitioner shares the product by this dimension, whatever it costs.

The same holds for sums over dimensions of an array, and for rows that are read from a table or added to one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Names: TypeAlias = frozenset[str]
LogicalAxes: TypeAlias = tuple[str | None, ...]
_OTHER = -1  # a dimension that the product does not have


@dataclass(frozen=True)
class ProductArray:
    """An operand or the result of a product.

    Attributes:
      bytes: the fewest bytes of the value on its way from or to where its logical axes are given.
      dimensions: the dimensions of the product that it has.
      given: the logical axes that the program gives it; None if it gives none.
      at: the dimension of the product of each of them; None if it is none of the product.
      users: products of the same loop body that use this value.
      narrow: the fewest bytes if it is moved as bfloat16, as TPUs multiply float32; None if it is not.
      state: whether it is an array of the train state that is only moved on the way, or the new train state
        is made of its elements. No product is beside such a transfer.
    """

    bytes: int
    dimensions: frozenset[int]
    given: LogicalAxes | None
    at: tuple[int | None, ...] = ()
    users: int = 1
    narrow: int | None = None
    state: bool = False


@dataclass(frozen=True)
class Contraction:
    """An operation that reduces dimensions of its operands: a matrix product, a sum, or a lookup in a table.

    Attributes:
      flops: of one run, on one device that does everything. 0 for all but products.
      dtype: the type of its operands.
      runs: how often it runs at least.
      names: the logical axes that can shard each of its dimensions.
      arrays: the operands, and the result as the last.
      reduced: the dimensions that the result does not have.
      decisive: the number of arrays with an axis in one dimension that makes it share the work by this one.
    """

    flops: float
    dtype: str
    runs: int
    names: tuple[Names, ...]
    arrays: tuple[ProductArray, ...]
    reduced: frozenset[int] = frozenset()
    decisive: int = 2


class AxisTransfer(NamedTuple):
    """A collective over mesh axes.

    Attributes:
      executions: may be a fraction, because several products share a transfer.
      more_traffic: bytes that a device reads or writes in HBM, because the array is whole along the axes.
      state: as of the array.
      certain: whether a product has no other way than to send it.
    """

    op: str
    axes: tuple[str, ...]
    payload: float
    executions: float
    more_traffic: float
    state: bool
    certain: bool = False


@dataclass(frozen=True)
class Costs:
    """The costs of the steps of a program on the mesh of a layout, in seconds.

    Attributes:
      transfer: of one byte of a collective, from its operation, mesh axes and whether it moves the train
        state, without the hidden part.
      flops: of FLOPs with operands of a type.
      traffic: of bytes of HBM.
    """

    transfer: Callable[[str, tuple[str, ...], bool], float]
    flops: Callable[[float, str], float]
    traffic: Callable[[float], float]

    def of(self, transfer: AxisTransfer) -> float:
        """Return the seconds that all executions of a transfer add to the step."""
        seconds = transfer.payload * self.transfer(transfer.op, transfer.axes, transfer.state)
        return transfer.executions * seconds + self.traffic(transfer.more_traffic)


Specs: TypeAlias = Callable[[LogicalAxes], tuple[tuple[str, ...] | None, ...]]


def least_transfers(
    contraction: Contraction,
    sizes: Mapping[str, int],
    axes_of: Mapping[str, frozenset[str]],
    spec_of: Specs,
    costs: Costs,
    narrows: bool = False,
) -> Iterator[AxisTransfer]:
    """Yield the transfers that a layout needs at least for a product.

    Transfers of one array over several mesh axes are one collective over all of them, or one over each,
    whichever is cheaper.

    Args:
      sizes: of the mesh axes with more than one device.
      axes_of: the mesh axes of each logical axis.
      spec_of: returns the mesh axes of each dimension of an array with these logical axes.
      narrows: whether the compiler moves float32 as bfloat16 if only products use it.
    """
    shared = _Shared(contraction, sizes, axes_of, spec_of, narrows)
    by_array: dict[tuple[int, str], list[AxisTransfer]] = {}
    for axis in sizes:
        if axis not in shared.sharing:
            continue
        certain = shared.is_decided(axis)
        for number, move in shared.cheapest(axis, costs).items():
            by_array.setdefault((number, move.op), []).append(move._replace(certain=certain))

    def cost(transfers: Sequence[AxisTransfer]) -> float:
        return sum(map(costs.of, transfers))

    for number in {number for number, _ in by_array}:
        by_op = {op: each for (own, op), each in by_array.items() if own == number}
        if len(by_op) > 1 or any(len(each) > 1 for each in by_op.values()):  # of which others can be made
            by_op = {op: [move._replace(certain=False) for move in each] for op, each in by_op.items()}
        fewest = {op: min([shared.joined(number, op, each)], each, key=cost) for op, each in by_op.items()}
        if fewest.keys() == {"all-reduce", "reduce-scatter"}:
            # It is reduced over one axis and scattered over the other, or reduced over both and sliced.
            both = shared.joined(number, "all-reduce", [*by_op["all-reduce"], *by_op["reduce-scatter"]])
            apart = [*fewest["all-reduce"], *fewest["reduce-scatter"]]
            yield from min([both], apart, key=cost)
        else:
            # One operation can replace others by doing more, so only the longest counts.
            yield from max(fewest.values(), key=cost)


def idle_axes(contraction: Contraction, sizes: Mapping[str, int], spec_of: Specs) -> frozenset[str]:
    """Return the mesh axes over which no array of a product is sharded; empty if an array is unknown."""
    labels = [_label(array, sizes, spec_of) for array in contraction.arrays]
    known = [label for label in labels if label is not None]
    return frozenset(sizes).difference(*known) if len(known) == len(labels) else frozenset()


def _label(array: ProductArray, sizes: Mapping[str, int], spec_of: Specs) -> dict[str, int] | None:
    """Return the dimension of the product that each mesh axis shards in an array; None if unknown."""
    if array.given is None:
        return None
    return {
        axis: _OTHER if at is None else at
        for axes, at in zip(spec_of(array.given), array.at, strict=True)
        for axis in axes or ()
        if axis in sizes
    }


class _Shared:
    """A product whose work mesh axes share.

    Attributes:
      sharing: the mesh axes that can shard one of its dimensions.
    """

    def __init__(
        self,
        contraction: Contraction,
        sizes: Mapping[str, int],
        axes_of: Mapping[str, frozenset[str]],
        spec_of: Specs,
        narrows: bool,
    ) -> None:
        none: frozenset[str] = frozenset()
        self._contraction, self._sizes = contraction, sizes
        self._axes = tuple(
            frozenset(axis for name in names for axis in axes_of.get(name, none) if axis in sizes)
            for names in contraction.names
        )
        self.sharing = none.union(*self._axes)
        ways = math.prod(sizes[axis] for axis in self.sharing)
        self._work = contraction.flops * contraction.runs / ways
        self._labels = [_label(array, sizes, spec_of) for array in contraction.arrays]
        # The mesh axes that can shard each array, and its bytes on a device if all of them do.
        self._sharded = [
            frozenset(label or ()).union(*(self._axes[at] for at in array.dimensions))
            for array, label in zip(contraction.arrays, self._labels, strict=True)
        ]
        parts = [math.prod(sizes[axis] for axis in sharded) for sharded in self._sharded]
        arrays = contraction.arrays
        # XLA's partitioner gives an axis of two dimensions to one, and an axis without work to the other.
        twice = sum(map(len, self._axes)) > len(self.sharing)
        idle = frozenset(sizes).difference(self.sharing, *filter(None, self._labels)) if twice else none
        free = math.prod(sizes[axis] for axis in idle)
        self._least = [array.bytes / own / free for array, own in zip(arrays, parts, strict=True)]
        self._least_moved = [
            (array.narrow or array.bytes) / own if narrows else array.bytes / own
            for array, own in zip(arrays, parts, strict=True)
        ]

    def is_decided(self, axis: str) -> bool:
        """Return whether it is known how an axis shares the work."""
        return self._decided(axis) is not None

    def cheapest(self, axis: str, costs: Costs) -> dict[int, AxisTransfer]:
        """Return the transfers of each array over a mesh axis, by its number."""
        contraction, decided = self._contraction, self._decided(axis)
        if decided is not None:
            return dict(self._moves(axis, decided))
        options = [
            dict(self._moves(axis, dimension)) for dimension, each in enumerate(self._axes) if axis in each
        ]
        costs_of = [sum(map(costs.of, option.values())) for option in options]
        # Or the devices along the axis repeat the work.
        options.append(dict(self._gathers(axis)))
        repeated = costs.flops(self._work * (self._sizes[axis] - 1), contraction.dtype)
        costs_of.append(repeated + sum(map(costs.of, options[-1].values())))
        return options[min(range(len(options)), key=costs_of.__getitem__)]

    def joined(self, number: int, op: str, transfers: Sequence[AxisTransfer]) -> AxisTransfer:
        """Return transfers of one array over several axes as one collective."""
        axes = tuple(axis for transfer in transfers for axis in transfer.axes)
        return AxisTransfer(
            op,
            axes,
            transfers[0].payload if op == "all-to-all" else self._whole_bytes(number, axes, op),
            min(transfer.executions for transfer in transfers),
            max(transfer.more_traffic for transfer in transfers),
            transfers[0].state,
        )

    def _decided(self, axis: str) -> int | None:
        """Return the dimension by which an axis shares the work; None if the cheapest one counts."""
        sharded = [
            (label[axis], array.bytes)
            for array, label in zip(self._contraction.arrays, self._labels, strict=True)
            if label is not None and axis in label
        ]
        if len(sharded) < self._contraction.decisive:
            return None
        places = [place for place, _ in sharded]
        dimension = max(places, key=places.count)
        if dimension == _OTHER or places.count(dimension) < self._contraction.decisive:
            return None
        # One that has the axis elsewhere is moved if it is the smallest.
        smallest = min(count for place, count in sharded if place == dimension)
        larger = any(count > smallest for place, count in sharded if place != dimension)
        return None if larger else dimension

    def _whole_bytes(self, number: int, axes: Sequence[str], op: str = "all-gather") -> float:
        """Return the bytes on a device of an array that is whole along axes, and sharded over all others."""
        least = self._least if op in ("all-reduce", "reduce-scatter") else self._least_moved
        ways = math.prod(self._sizes[axis] for axis in axes if axis in self._sharded[number])
        return least[number] * ways

    def _gathers(self, axis: str) -> Iterator[tuple[int, AxisTransfer]]:
        """Yield the transfers of the operands if the devices along an axis all compute the whole product."""
        contraction = self._contraction
        for number, (array, label) in enumerate(zip(contraction.arrays[:-1], self._labels, strict=False)):
            if label is not None and axis in label:
                whole, runs = self._whole_bytes(number, (axis,)), contraction.runs / array.users
                yield number, AxisTransfer("all-gather", (axis,), whole, runs, 0.0, array.state)

    def _moves(self, axis: str, dimension: int) -> Iterator[tuple[int, AxisTransfer]]:
        """Yield the transfers of each array if an axis shares the product by one dimension."""
        contraction = self._contraction
        last, size = len(contraction.arrays) - 1, self._sizes[axis]
        for number, (array, label) in enumerate(zip(contraction.arrays, self._labels, strict=True)):
            if label is None:
                continue
            whole = self._whole_bytes(number, (axis,))
            now, runs = label.get(axis), contraction.runs / array.users
            if dimension in array.dimensions:
                if now is None and number == last:
                    yield number, AxisTransfer("all-gather", (axis,), whole, runs, 0.0, array.state)
                elif now not in (None, dimension):
                    yield number, AxisTransfer("all-to-all", (axis,), whole / size, runs, 0.0, array.state)
                continue
            if number == last:
                # A value that is made larger in a dimension which it does not have must be whole.
                op = "all-reduce" if now in (None, _OTHER) else "reduce-scatter"
                whole = self._whole_bytes(number, (axis,), op)
            elif now is None:
                continue
            else:
                op = "all-gather"
            more = 0.0 if now is None else whole * (1 - 1 / size) * contraction.runs
            yield number, AxisTransfer(op, (axis,), whole, runs, more, array.state)
