"""What a layout must send for the matrix products of a program, at least.

The program gives logical axes to the operands and results of its products, so the sharding of each is known.
A mesh axis can share the work of a product by one of its dimensions. An operand that is sharded over this
axis in another dimension must then be gathered or exchanged, and a contraction ends with a reduction. If the
axis shares no dimension, the devices along it repeat the work. The cheapest of these is what the product
costs at least on this axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Names: TypeAlias = frozenset[str]
LogicalAxes: TypeAlias = tuple[str | None, ...]
_OTHER = -1  # a dimension that the product does not have


@dataclass(frozen=True)
class Array:
    """An operand or the result of a product.

    Attributes:
      bytes: the fewest bytes of the value on its way from or to where its logical axes are given.
      dimensions: the dimensions of the product that it has.
      given: the logical axes that the program gives it; None if it gives none.
      at: the dimension of the product of each of them; None if it is none of the product.
      users: products of the same loop body that use this value.
    """

    bytes: int
    dimensions: frozenset[int]
    given: LogicalAxes | None
    at: tuple[int | None, ...] = ()
    users: int = 1


@dataclass(frozen=True)
class Contraction:
    """A matrix product.

    Attributes:
      flops: of one run, on one device that does everything.
      dtype: the type of its operands.
      runs: how often it runs at least.
      names: the logical axes that can shard each of its dimensions.
      arrays: both operands, and the result as the last.
    """

    flops: float
    dtype: str
    runs: int
    names: tuple[Names, ...]
    arrays: tuple[Array, ...]


class Transfer(NamedTuple):
    """A collective over mesh axes.

    Attributes:
      executions: may be a fraction, because several products share a transfer.
      more_traffic: bytes that a device reads or writes in HBM, because the array is whole along the axes.
    """

    op: str
    axes: tuple[str, ...]
    payload: float
    executions: float
    more_traffic: float


@dataclass(frozen=True)
class Costs:
    """What the steps of a program cost on the mesh of a layout, in seconds.

    Attributes:
      transfer: of one collective, from its operation, mesh axes and payload.
      exposed_share: the share of transfers that is not hidden.
      flops: of FLOPs with operands of a type.
      traffic: of bytes of HBM.
    """

    transfer: Callable[[str, tuple[str, ...], float], float]
    exposed_share: float
    flops: Callable[[float, str], float]
    traffic: Callable[[float], float]

    def of(self, transfer: Transfer) -> float:
        """Return the seconds that all executions of a transfer add to the step."""
        seconds = self.transfer(transfer.op, transfer.axes, transfer.payload)
        return self.exposed_share * transfer.executions * seconds + self.traffic(transfer.more_traffic)


def least_transfers(
    contraction: Contraction,
    sizes: Mapping[str, int],
    axes_of: Mapping[str, frozenset[str]],
    spec_of: Callable[[LogicalAxes], tuple[tuple[str, ...] | None, ...]],
    costs: Costs,
) -> Iterator[Transfer]:
    """Yield what a layout must send at least for a product.

    Transfers of one array over several mesh axes may be one collective over all of them, so they count as one
    if their operation is the same. Otherwise only the longest counts.

    Args:
      sizes: of the mesh axes with more than one device.
      axes_of: the mesh axes of each logical axis.
      spec_of: returns the mesh axes of each dimension of an array with these logical axes.
    """
    none: frozenset[str] = frozenset()
    axes = tuple(
        frozenset(axis for name in names for axis in axes_of.get(name, none) if axis in sizes)
        for names in contraction.names
    )
    labels = [_labels(array, sizes, spec_of) for array in contraction.arrays]
    sharing = none.union(*axes)
    ways = 1
    for axis in sharing:
        ways *= sizes[axis]
    work = contraction.flops * contraction.runs / ways
    by_array: dict[tuple[int, str], list[Transfer]] = {}
    for axis in sizes:
        if axis not in sharing:
            continue
        # The last one repeats the work along the axis, for which each operand must be whole.
        options = [
            dict(_moves(contraction, axes, labels, sizes, axis, dimension))
            for dimension, each in enumerate(axes)
            if axis in each
        ]
        costs_of = [sum(map(costs.of, option.values())) for option in options]
        options.append(dict(_gathers(contraction, axes, labels, sizes, axis)))
        repeated = costs.flops(work * (sizes[axis] - 1), contraction.dtype)
        costs_of.append(repeated + sum(map(costs.of, options[-1].values())))
        moves = options[min(range(len(options)), key=costs_of.__getitem__)]
        for number, move in moves.items():
            by_array.setdefault((number, move.op), []).append(move)
    longest: dict[int, Transfer] = {}
    for (number, _), transfers in by_array.items():
        together = _together(transfers)
        if number not in longest or costs.of(together) > costs.of(longest[number]):
            longest[number] = together
    yield from longest.values()


def _together(transfers: list[Transfer]) -> Transfer:
    """Return transfers of one array over several axes as one collective."""
    return Transfer(
        transfers[0].op,
        tuple(axis for each in transfers for axis in each.axes),
        min(each.payload for each in transfers),
        min(each.executions for each in transfers),
        max(each.more_traffic for each in transfers),
    )


def _labels(
    array: Array,
    sizes: Mapping[str, int],
    spec_of: Callable[[LogicalAxes], tuple[tuple[str, ...] | None, ...]],
) -> dict[str, int] | None:
    """Return the dimension of the product that each mesh axis shards in an array; None if unknown."""
    if array.given is None:
        return None
    return {
        axis: _OTHER if at is None else at
        for axes, at in zip(spec_of(array.given), array.at, strict=True)
        for axis in axes or ()
        if axis in sizes
    }


def _whole_bytes(
    array: Array,
    axes: tuple[frozenset[str], ...],
    label: dict[str, int],
    sizes: Mapping[str, int],
    axis: str,
) -> float:
    """Return the bytes on a device of an array that is whole along an axis, and sharded over all others."""
    whole = float(array.bytes)
    for other in frozenset(label).union(*(axes[at] for at in array.dimensions)) - {axis}:
        whole /= sizes[other]
    return whole


def _gathers(
    contraction: Contraction,
    axes: tuple[frozenset[str], ...],
    labels: list[dict[str, int] | None],
    sizes: Mapping[str, int],
    axis: str,
) -> Iterator[tuple[int, Transfer]]:
    """Yield the transfers of the operands if the devices along a mesh axis all compute the whole product."""
    for number, (array, label) in enumerate(zip(contraction.arrays[:-1], labels, strict=False)):
        if label is not None and axis in label:
            whole = _whole_bytes(array, axes, label, sizes, axis)
            runs = contraction.runs / array.users
            yield number, Transfer("all-gather", (axis,), whole, runs, 0.0)


def _moves(
    contraction: Contraction,
    axes: tuple[frozenset[str], ...],
    labels: list[dict[str, int] | None],
    sizes: Mapping[str, int],
    axis: str,
    dimension: int,
) -> Iterator[tuple[int, Transfer]]:
    """Yield the transfers of each array if a mesh axis shares the product by one dimension."""
    last, size = len(contraction.arrays) - 1, sizes[axis]
    for number, (array, label) in enumerate(zip(contraction.arrays, labels, strict=True)):
        if label is None:
            continue
        whole = _whole_bytes(array, axes, label, sizes, axis)
        now, runs = label.get(axis), contraction.runs / array.users
        if dimension in array.dimensions:
            if now is None and number == last:
                yield number, Transfer("all-gather", (axis,), whole, runs, 0.0)
            elif now not in (None, dimension):
                yield number, Transfer("all-to-all", (axis,), whole / size, runs, 0.0)
            continue
        if number == last:
            op = "all-reduce" if now is None else "reduce-scatter"
        elif now is None:
            continue
        else:
            op = "all-gather"
        more = 0.0 if now is None else whole * (1 - 1 / size) * contraction.runs
        yield number, Transfer(op, (axis,), whole, runs, more)
