"""Folded arrays as a tree of path segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inspector.core.folding import Fold

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
