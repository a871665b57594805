"""The rows of a tree of arrays in several layouts: their order, and the open ones.

The rows are the paths of all layouts, so a row is the same array in each of them. Layers that are alike in
every layout share a row. Of large trees, the subtrees with differences and the largest ones are open.
"""

import heapq
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from inspector.core import formatting
from inspector.core.folding import fold
from inspector.core.snapshot import Array
from inspector.figures import path_tree
from inspector.figures.path_tree import Node

MOST_ROWS = 60  # that are open from the start
MOST_CHILDREN = 30  # the smaller ones share a row


@dataclass(frozen=True)
class Column:
    """The arrays of one layout, and the paths of those that differ from the baseline.

    changed: None for the baseline itself, or if there is only one layout.
    """

    name: str
    arrays: tuple[Array, ...]
    changed: Collection[str] | None = None


@dataclass(frozen=True)
class Row:
    """A node of the tree: its indent, the paths of the arrays below it, and whether these have rows too."""

    node: Node
    depth: int
    paths: tuple[str, ...]
    is_open: bool

    @property
    def key(self) -> str:
        """What selecting the row gives: the path of its first array, or that of the node and a slash."""
        return _key(self.node)


@dataclass(frozen=True)
class Measure:
    """The amounts of the bars: `bytes` and `on each device`, and its amount for an array, None if unknown."""

    unit: str
    where: str
    of: Callable[[Array], int | None]

    def text(self, amount: int) -> str:
        """Return an amount in short, of bytes with their unit."""
        if self.unit == "bytes":
            return formatting.bytes_text(amount)
        for unit, scale in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
            if amount >= scale:
                return f"{amount / scale:.3g} {unit}"
        return str(amount)

    def exact_text(self, amount: int | None) -> str:
        """Return an amount with its unit, in short and exactly; `unknown` for None."""
        if self.unit == "bytes" or amount is None:
            return formatting.exact_bytes_text(amount)
        return f"{amount:,} {self.unit}"


# The first of these that is known of any array is shown.
_MEASURES = (
    Measure("bytes", "on each device", lambda array: array.bytes_per_device),
    Measure(
        "elements",
        "on each device",
        lambda array: None if array.shard_shape is None else math.prod(array.shard_shape),
    ),
    Measure("bytes", "in total, without copies", lambda array: array.bytes),
)


def rows_of(columns: Sequence[Column], toggled: Collection[str] = ()) -> tuple[Row, ...]:
    """Return the rows of all layouts, the largest of each subtree first.

    Arrays share a row if they are alike in every layout.

    Args:
      toggled: the keys of rows that the user has opened or closed.
    """
    size_of = measure_of(columns).of
    weights: dict[str, tuple[bool, int]] = {}
    for column in columns:
        for array in column.arrays:
            differs, size = weights.get(array.path, (False, 0))
            differs |= array.path in (column.changed or ())
            weights[array.path] = differs, max(size, size_of(array) or 0)

    def weight(node: Node) -> tuple[bool, int]:
        below = [weights[path] for path in _paths(node)]
        return any(differs for differs, _ in below), sum(size for _, size in below)

    def children(node: Node) -> Sequence[Node]:
        ranked = sorted(node.children, key=lambda child: -weight(child)[1])
        if len(ranked) <= MOST_CHILDREN:
            return ranked
        rest = tuple(ranked[MOST_CHILDREN - 1 :])
        name = f"{sum(child.arrays for child in rest):,} smaller"
        return [*ranked[: MOST_CHILDREN - 1], path_tree.above(name, f"{node.path}/…", rest)]

    def walk(node: Node, depth: int) -> Iterator[Row]:
        is_open = _key(node) in open_keys
        yield Row(node, depth, _paths(node), is_open)
        for child in children(node) if is_open else ():
            yield from walk(child, depth + 1)

    roots = path_tree.grow(fold(_alike(columns)))
    if not roots:
        return ()
    root = path_tree.rooted(roots, "all")
    open_keys = _opened(root, children, weight).symmetric_difference(toggled)
    return tuple(walk(root, 0))


def measure_of(columns: Sequence[Column]) -> Measure:
    """Return the amount in the bars: bytes on each device, unless they are unknown of all arrays."""
    arrays = [array for column in columns for array in column.arrays]
    known = (measure for measure in _MEASURES if any(map(measure.of, arrays)))
    return next(known, _MEASURES[0])


def _key(node: Node) -> str:
    return f"{node.path}/" if node.fold is None else node.fold.first.path


def _paths(node: Node) -> tuple[str, ...]:
    return tuple(array.path for leaf in node.folds() for array in leaf.arrays)


def _alike(columns: Sequence[Column]) -> Iterator[Array]:
    """Yield an array for each path, equal to others only if they are alike in every layout."""
    held = [{array.path: array for array in column.arrays} for column in columns]
    for path in dict.fromkeys(path for arrays in held for path in arrays):
        versions = [arrays.get(path) for arrays in held]
        first = next(array for array in versions if array is not None)
        # `fold` compares logical axes, so everything that must be equal is put there.
        facts = ["" if array is None else repr(replace(array, path="", shards=None)) for array in versions]
        marks = [str(path in (column.changed or ())) for column in columns]
        yield replace(first, logical_axes=(*facts, *marks))


def _opened(
    root: Node,
    children: Callable[[Node], Sequence[Node]],
    weight: Callable[[Node], tuple[bool, int]],
) -> set[str]:
    """Return the keys of the subtrees that are open from the start: the heaviest, to `MOST_ROWS` rows."""
    opened: set[str] = set()
    rows = 1
    closed = [(False, 0, 0, root)]
    while closed:
        *_, node = heapq.heappop(closed)
        below = children(node)
        if not below or rows + len(below) > MOST_ROWS:
            continue
        opened.add(_key(node))
        for child in below:
            rows += 1
            differs, size = weight(child)
            heapq.heappush(closed, (not differs, -size, rows, child))
    return opened
