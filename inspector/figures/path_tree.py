"""Folded arrays as a tree by the segments of their paths, with bytes summed up to the root."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inspector.core.folding import Fold

# The segments of a path below this depth form one name, so that no recursion over a tree gets deeper.
MAX_DEPTH = 64


@dataclass(frozen=True)
class Node:
    """A segment of paths, with what lies under it; a leaf has a fold and no children.

    path: the whole path from the root, which no other node has.
    bytes, bytes_per_device: sums over all arrays under it; None if one of them is not known.
    """

    name: str
    path: str
    children: tuple[Node, ...]
    fold: Fold | None
    arrays: int
    bytes: int | None
    bytes_per_device: int | None


def grow(folds: Iterable[Fold]) -> tuple[Node, ...]:
    """The roots of the tree, in the order of the folds.

    A segment with a single child and no array of its own is joined with it: `Dense_0/kernel`.
    """
    return _nodes([(one.path.split("/", MAX_DEPTH), one) for one in folds], "")


def rooted(nodes: tuple[Node, ...], name: str) -> Node:
    """One node above all of these; the only one itself if there is but one."""
    return nodes[0] if len(nodes) == 1 else _above(name, "", nodes)


def without_children(nodes: Sequence[Node], name: str) -> Node:
    """One node that stands for several, with their sums but without a way down to them."""
    above = _above(name, "", tuple(nodes))
    return dataclasses.replace(above, children=())


def _nodes(entries: list[tuple[list[str], Fold]], above: str) -> tuple[Node, ...]:
    by_segment: dict[str, list[tuple[list[str], Fold]]] = {}
    for segments, one in entries:
        by_segment.setdefault(segments[0], []).append((segments[1:], one))
    nodes: list[Node] = []
    for segment, members in by_segment.items():
        path = f"{above}/{segment}" if above else segment
        # A path may be the beginning of another one, and two folds may print alike.
        leaves = [_leaf(segment, path, one) for rest, one in members if not rest]
        deeper = [(rest, one) for rest, one in members if rest]
        nodes.extend(leaves)
        if deeper:
            nodes.append(_inner(segment, path, _nodes(deeper, path)))
    return tuple(nodes)


def _leaf(name: str, path: str, one: Fold) -> Node:
    return Node(name, path, (), one, one.count, one.bytes, one.bytes_per_device)


def _inner(name: str, path: str, children: tuple[Node, ...]) -> Node:
    if len(children) == 1:
        (only,) = children
        joined = f"{name}/{only.name}"
        return Node(
            joined,
            only.path,
            only.children,
            only.fold,
            only.arrays,
            only.bytes,
            only.bytes_per_device,
        )
    return _above(name, path, children)


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
