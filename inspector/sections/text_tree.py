"""The arrays as an indented text tree: path, shape, dtype, logical axes → spec, bytes per device."""

from collections.abc import Iterable, Iterator

from inspector.core import formatting, sharding_text
from inspector.core.folding import fold
from inspector.core.memory_kinds import in_host_memory, memory_kind
from inspector.core.printable import printable
from inspector.core.snapshot import Array
from inspector.core.statistics import sum_known
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
    folds = fold(arrays) if folded else tuple(one for array in arrays for one in fold([array]))
    rows = [_HEADING, *_rows(path_tree.grow(folds), 0)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(_line(row, widths) + "\n" for row in rows)


def _rows(nodes: Iterable[Node], depth: int) -> Iterator[tuple[str, ...]]:
    for node in nodes:
        name = _INDENT * depth + printable(node.name)
        if node.fold is None:
            yield name, "", "", "", _sum_text(node)
        else:
            array, count = node.fold.first, node.fold.count
            bytes_text = f"{count} × {formatting.bytes_text(array.bytes_per_device)}"
            logical = formatting.logical_text(array.logical_axes)
            yield (
                name,
                formatting.shape_text(array.shape),
                array.dtype,
                f"{logical} → {sharding_text.array_spec_text(array)}".removeprefix(" "),
                (bytes_text if count > 1 else formatting.bytes_text(array.bytes_per_device))
                + (f" in {memory_kind(array)}" if in_host_memory(array) else ""),
            )
        yield from _rows(node.children, depth + 1)


def _sum_text(node: Node) -> str:
    """Return the bytes of all arrays below a node in device memory, and those in host memory."""
    below = [array for fold in node.folds() for array in fold.arrays]
    device, host = (
        sum_known(array.bytes_per_device for array in below if in_host_memory(array) == in_host)
        for in_host in (False, True)
    )
    on_host = "" if host == 0 else f" + {formatting.bytes_text(host)} in host memory"
    return formatting.bytes_text(device) + on_host


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """Align the columns of a row to the left, and the last one, bytes, to the right."""
    *cells, last = (cell for cell in row)
    padded = [cell.ljust(width) for cell, width in zip(cells, widths[:-1], strict=True)]
    return _BETWEEN.join([*padded, last.rjust(widths[-1])]).rstrip()
