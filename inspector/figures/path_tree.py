"""Folded arrays as a tree of path segments, with bytes summed up to the roots."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from inspector.core.folding import Fold

# Deeper segments of a path form one name, so that recursion over a tree stays shallow.
MAX_DEPTH = 64


@dataclass(frozen=True)
class Node:
    """A path segment and the tree below it; a leaf has a fold and no children.

    path: the complete path, which is unique.
    bytes, bytes_per_device: sums over all arrays below; None if one of them is unknown.
    """

    name: str
    path: str
    children: tuple[Node, ...]
    fold: Fold | None
    arrays: int
    bytes: int | None
    bytes_per_device: int | None

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
    return _nodes([(one.path.split("/", MAX_DEPTH), one) for one in folds], "")


def rooted(nodes: tuple[Node, ...], name: str) -> Node:
    """Return one node above all of these, or the only node itself."""
    return nodes[0] if len(nodes) == 1 else _above(name, "", nodes)


def without_children(nodes: Sequence[Node], name: str) -> Node:
    """Return one node with the sums of these nodes, and no children."""
    return dataclasses.replace(_above(name, "", tuple(nodes)), children=())


def _nodes(entries: list[tuple[list[str], Fold]], above: str) -> tuple[Node, ...]:
    by_segment: dict[str, list[tuple[list[str], Fold]]] = {}
    for segments, one in entries:
        by_segment.setdefault(segments[0], []).append((segments[1:], one))
    nodes: list[Node] = []
    for name, members in by_segment.items():
        path = f"{above}/{name}" if above else name
        # A path may be the prefix of another one, and two folds may have the same text.
        nodes += [
            Node(name, path, (), one, one.count, one.bytes, one.bytes_per_device)
            for rest, one in members
            if not rest
        ]
        deeper = [(rest, one) for rest, one in members if rest]
        if deeper:
            children = _nodes(deeper, path)
            joined = dataclasses.replace(children[0], name=f"{name}/{children[0].name}")
            nodes.append(joined if len(children) == 1 else _above(name, path, children))
    return tuple(nodes)


def _above(name: str, path: str, children: tuple[Node, ...]) -> Node:
    return Node(
        name,
        path,
        children,
        None,
        sum(child.arrays for child in children),
        _sum([child.bytes for child in children]),
        _sum([child.bytes_per_device for child in children]),
    )


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
