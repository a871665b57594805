"""The rows of a tree of arrays in several layouts: their order, and the open ones.

The rows are the paths of all layouts, so a row is the same array in each of them. Layers that are alike in
every layout share a row. Of large trees, the subtrees with differences and the largest ones are open.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from inspector.records.snapshot import Array
from inspector.sharding.folding import Fold, fold
from inspector.text import formatting

# Deeper segments of a path form one name, so that recursion over a tree stays shallow.
MAX_DEPTH = 64


@dataclass(frozen=True)
class Node:
    """A path segment and the tree below it; a leaf has a fold and no children.

    path: the complete path, which is unique.
    arrays: the number of arrays below.
    """

    name: str
    path: str
    children: tuple[Node, ...]
    fold: Fold | None
    arrays: int

    @property
    def title(self) -> str:
        """The name, with the number of folded arrays: `kernel ×4`."""
        return self.name + (f" ×{self.fold.count}" if self.fold and self.fold.count > 1 else "")

    def folds(self) -> Iterator[Fold]:
        """Yield all folds of this node and below."""
        if self.fold is not None:
            yield self.fold
        for child in self.children:
            yield from child.folds()


def grow(folds: Iterable[Fold]) -> tuple[Node, ...]:
    """Return the roots of the tree, in the order of the folds.

    A segment with a single child and no array is joined with it: `Dense_0/kernel`.
    """
    return _nodes([(leaf.path.split("/", MAX_DEPTH), leaf) for leaf in folds], "")


def rooted(nodes: tuple[Node, ...], name: str) -> Node:
    """Return one node above all of these, or the only node itself."""
    return nodes[0] if len(nodes) == 1 else above(name, "", nodes)


def above(name: str, path: str, children: tuple[Node, ...]) -> Node:
    """Return a node with these children."""
    return Node(name, path, children, None, sum(child.arrays for child in children))


def _nodes(entries: list[tuple[list[str], Fold]], parent: str) -> tuple[Node, ...]:
    by_segment: dict[str, list[tuple[list[str], Fold]]] = {}
    for segments, leaf in entries:
        by_segment.setdefault(segments[0], []).append((segments[1:], leaf))
    nodes: list[Node] = []
    for name, members in by_segment.items():
        path = f"{parent}/{name}" if parent else name
        # A path may be the prefix of another one, and two folds may have the same text.
        nodes += [Node(name, path, (), leaf, leaf.count) for rest, leaf in members if not rest]
        deeper = [(rest, leaf) for rest, leaf in members if rest]
        if deeper:
            children = _nodes(deeper, path)
            joined = dataclasses.replace(children[0], name=f"{name}/{children[0].name}")
            nodes.append(joined if len(children) == 1 else above(name, path, children))
    return tuple(nodes)


MOST_ROWS = 60  # that are open from the start
MOST_CHILDREN = 30  # the smaller ones share a row


@dataclass(frozen=True)
class LayoutColumn:
    """The arrays of one layout, and the paths of those that differ from the baseline.

    changed: None for the baseline itself, or if there is only one layout.
    """

    name: str
    arrays: tuple[Array, ...]
    changed: Collection[str] | None = None


@dataclass(frozen=True)
class TreeRow:
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
class BarMeasure:
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
    BarMeasure("bytes", "on each device", lambda array: array.bytes_per_device),
    BarMeasure(
        "elements",
        "on each device",
        lambda array: None if array.shard_shape is None else math.prod(array.shard_shape),
    ),
    BarMeasure("bytes", "in total, without copies", lambda array: array.bytes),
)


def rows_of(columns: Sequence[LayoutColumn], toggled: Collection[str] = ()) -> tuple[TreeRow, ...]:
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
        return [*ranked[: MOST_CHILDREN - 1], above(name, f"{node.path}/…", rest)]

    def walk(node: Node, depth: int) -> Iterator[TreeRow]:
        is_open = _key(node) in open_keys
        yield TreeRow(node, depth, _paths(node), is_open)
        for child in children(node) if is_open else ():
            yield from walk(child, depth + 1)

    roots = grow(fold(_alike(columns)))
    if not roots:
        return ()
    root = rooted(roots, "all")
    open_keys = _opened(root, children, weight).symmetric_difference(toggled)
    return tuple(walk(root, 0))


def measure_of(columns: Sequence[LayoutColumn]) -> BarMeasure:
    """Return the amount in the bars: bytes on each device, unless they are unknown of all arrays."""
    arrays = [array for column in columns for array in column.arrays]
    known = (measure for measure in _MEASURES if any(map(measure.of, arrays)))
    return next(known, _MEASURES[0])


def _key(node: Node) -> str:
    return f"{node.path}/" if node.fold is None else node.fold.first.path


def _paths(node: Node) -> tuple[str, ...]:
    return tuple(array.path for leaf in node.folds() for array in leaf.arrays)


def _alike(columns: Sequence[LayoutColumn]) -> Iterator[Array]:
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
