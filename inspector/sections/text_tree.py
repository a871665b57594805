"""The arrays as an indented text tree: path, shape, dtype, logical axes → spec, bytes per device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from inspector.core import formatting
from inspector.core.folding import fold
from inspector.core.snapshot import Array
from inspector.figures import path_tree
from inspector.figures.path_tree import Node

_INDENT = "  "
_BETWEEN = "  "
_HEADING = ("array", "shape", "dtype", "logical axes → spec", "bytes per device")


def text_tree(arrays: Iterable[Array], folded: bool = True) -> str:
    """Return an indented tree with aligned columns and one line per node.

    Args:
      folded: identical layers share a line, `DotReluDot_{0…3}`, with the bytes of all of them.
    """
    arrays = tuple(arrays)
    folds = fold(arrays) if folded else tuple(one for each in arrays for one in fold([each]))
    rows = [_HEADING, *_rows(path_tree.grow(folds), 0)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(_line(row, widths) + "\n" for row in rows)


def _rows(nodes: Iterable[Node], depth: int) -> Iterator[tuple[str, ...]]:
    for node in nodes:
        name = _INDENT * depth + _plain(node.name)
        if node.fold is None:
            yield name, "", "", "", formatting.bytes_text(node.bytes_per_device)
        else:
            one, count = node.fold.first, node.fold.count
            each = f"{count} × {formatting.bytes_text(one.bytes_per_device)}"
            logical = formatting.logical_text(one.logical_axes)
            yield (
                name,
                formatting.shape_text(one.shape),
                one.dtype,
                f"{logical} → {formatting.spec_text(one.spec)}".removeprefix(" "),
                each if count > 1 else formatting.bytes_text(one.bytes_per_device),
            )
        yield from _rows(node.children, depth + 1)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """Align the columns of a row to the left, and the last one, bytes, to the right."""
    *cells, last = (cell for cell in row)
    padded = [cell.ljust(width) for cell, width in zip(cells, widths[:-1], strict=True)]
    return _BETWEEN.join([*padded, last.rjust(widths[-1])]).rstrip()


def _plain(name: str) -> str:
    """Replace control characters, which would break the columns or move the cursor."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in name)
