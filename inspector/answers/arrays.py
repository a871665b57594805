"""All arrays: the tree of PartitionSpecs, shard maps, and a table."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from inspector import figures
from inspector.answers import array as one_array
from inspector.answers import unknown
from inspector.answers.section import Block, Cell, Column, Folded, Picture, Preformatted, Section, Table, text
from inspector.figures import tree_rows
from inspector.figures.tree_rows import Node
from inspector.records.snapshot import Array, Mesh, Snapshot
from inspector.records.statistics import sum_known
from inspector.sharding import memory_kinds, sharding_text
from inspector.sharding.array_groups import ARRAY_GROUPS
from inspector.sharding.folding import fold
from inspector.sharding.memory_kinds import in_host_memory, memory_kind
from inspector.sharding.meshes import mesh_name, mesh_title
from inspector.sharding.sharding_text import array_spec_text
from inspector.sharding.totals import STATE_GROUPS
from inspector.text import formatting
from inspector.text.formatting import capitalized, counted, logical_text, shape_text
from inspector.text.printable import printable

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
    rows = [_HEADING, *_rows(tree_rows.grow(folds), 0)]
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


GROUP_TITLES = {group: capitalized(words) for group, words in ARRAY_GROUPS.items()}

_PACKED = Column(
    "Packed per device",
    "bytes",
    "Bytes in a compiled program, which packs several elements into one byte. JAX counts one byte for each.",
)
_DEVICE_MEMORY = ("device", "tpu_hbm", "unpinned_host", None)


def state_arrays(snapshot: Snapshot) -> tuple[Array, ...]:
    """Return the arrays of the train state, or all arrays if there is no train state."""
    state = tuple(array for array in snapshot.arrays if array.group in STATE_GROUPS)
    return state or snapshot.arrays


def tree_pictures(
    snapshot: Snapshot, arrays: Sequence[Array], toggled: Collection[str] | None = None
) -> tuple[Block, ...]:
    """Return the arrays as a tree with PartitionSpecs and bytes on each device, one tree for each mesh.

    Args:
      toggled: the keys of subtrees that the user has opened or closed; None if this is not possible.
    """

    def pictures(mesh: Mesh | None, on_mesh: Sequence[Array]) -> tuple[Block, ...]:
        def draw(width_px: int) -> go.Figure | None:
            columns = [figures.tree_rows.LayoutColumn("", tuple(on_mesh))]
            return figures.spec_tree.spec_tree(columns, mesh, toggled=toggled, width_px=width_px)

        return (Picture("spec_tree", "Tree of arrays with PartitionSpecs and bytes", draw),)

    return _for_each_mesh(snapshot, arrays, "tree", pictures)


def _for_each_mesh(
    snapshot: Snapshot,
    arrays: Sequence[Array],
    key: str,
    blocks_of: Callable[[Mesh | None, Sequence[Array]], tuple[Block, ...]],
) -> tuple[Block, ...]:
    """Return the blocks of the arrays on each mesh, below the name of the mesh if there are several."""
    if not snapshot.other_meshes:
        return blocks_of(snapshot.mesh, arrays)
    sections: list[Block] = []
    for number, (index, mesh) in enumerate(snapshot.indexed_meshes(), start=1):
        on_mesh = [array for array in arrays if array.mesh == index]
        if on_mesh and mesh is not None:
            title = mesh_title(number, mesh)
            title = capitalized(title)
            blocks = [
                replace(block, key=_key_on_mesh(block.key, number)) if isinstance(block, Picture) else block
                for block in blocks_of(mesh, on_mesh)
            ]
            sections.append(Section(f"{key}-{number}", title, tuple(blocks)))
    return tuple(sections)


def picture_keys(snapshot: Snapshot, key: str) -> tuple[str, ...]:
    """Return the keys of a picture that is drawn once for each mesh."""
    return tuple(_key_on_mesh(key, number + 1) for number in range(max(len(snapshot.meshes), 1)))


def _key_on_mesh(key: str, number: int) -> str:
    return key if number == 1 else f"{key}-mesh-{number}"


def tree_texts(snapshot: Snapshot, arrays: Sequence[Array], folded: bool = True) -> tuple[Block, ...]:
    """Return the arrays as a text tree to copy, one tree for each mesh. `folded` joins identical layers."""
    return _for_each_mesh(
        snapshot, arrays, "text-tree", lambda _, these: (Preformatted(text_tree(these, folded)),)
    )


def tree(snapshot: Snapshot) -> Section:
    """Return the tree of PartitionSpecs as a figure and as text."""
    missing = unknown.no_arrays(snapshot)
    if missing is not None:
        return Section("tree", "PartitionSpecs", (missing,))
    arrays = state_arrays(snapshot)
    as_text = Folded("As text", tree_texts(snapshot, arrays))
    return Section("tree", "PartitionSpecs", (*tree_pictures(snapshot, arrays), as_text))


def maps(snapshot: Snapshot, most: int) -> Section:
    """Return large shard maps of the `most` largest arrays."""
    missing = unknown.no_arrays(snapshot) or unknown.no_mesh(snapshot)
    blocks: list[Block] = [] if missing is None else [missing]
    for number, array in enumerate(largest(snapshot, most)):
        inside = one_array.maps(array, snapshot)
        blocks.append(Section(f"map-{number}", array.path, inside))
    if not blocks:
        blocks = [text("No large shard maps are drawn.", quiet=True)]
    return Section("maps", "Shard maps", tuple(blocks))


def largest(snapshot: Snapshot, most: int) -> list[Array]:
    """Return the first array of each of the largest groups of identical layers that have a shard map."""
    if snapshot.mesh is None:
        return []
    parameters = [array for array in snapshot.arrays if array.group == "params"]
    why_no_map = figures.block_map.why_no_map
    folds = [
        folded
        for folded in fold(parameters or snapshot.arrays)
        if (mesh := snapshot.mesh_of(folded.first)) is not None and why_no_map(folded.first, mesh) is None
    ]
    ranked = sorted(folds, key=lambda folded: -size_of(folded.first) * folded.count)
    return [folded.first for folded in ranked[:most]]


def size_of(array: Array) -> int:
    """Return the bytes of an array, or its elements if the bytes are unknown, to rank arrays by."""
    if array.bytes is not None:
        return array.bytes
    return array.elements or 0


def folded_table(snapshot: Snapshot) -> Section:
    """Return all arrays in a table that opens on request."""
    missing = unknown.no_arrays(snapshot)
    if missing is not None:
        return Section("arrays", "Arrays", (missing,))
    summary = f"{counted(len(snapshot.arrays), 'array')} with shapes, specs and bytes"
    return Section("arrays", "Arrays", (Folded(summary, (table(by_bytes(snapshot.arrays)),)),))


def table(arrays: Sequence[Array]) -> Table:
    """Return a table with one row per array. Memory kinds have a column if one is not device memory."""
    cells: dict[str | Column, Callable[[Array], Cell]] = {
        "Path:code": lambda array: array.path,
        "Bytes per device:bytes": lambda array: array.bytes_per_device,
        "Logical axes": lambda array: logical_text(array.logical_axes) or "–",
        "PartitionSpec": lambda array: array_spec_text(array),
        "Shape": lambda array: shape_text(array.shape),
        "Shard shape": lambda array: shape_text(array.shard_shape),
        "Bytes:bytes": lambda array: array.bytes,
        "Replicas:count": lambda array: array.replicas,
        "Type": lambda array: array.dtype,
        "Group": lambda array: GROUP_TITLES.get(array.group, array.group),
    }
    if any(array.mesh is not None for array in arrays):
        cells["Mesh"] = mesh_name
    if any(memory_kind(array) not in _DEVICE_MEMORY for array in arrays):
        cells["Memory"] = memory_kind
    if any(map(memory_kinds.is_packed, arrays)):
        cells[_PACKED] = memory_kinds.packed_per_device
    return Table.of("array_table", arrays, cells)


def host_memory(arrays: Sequence[Array]) -> tuple[Block, ...]:
    """Return the arrays that are not in device memory, by memory kind; empty if there are none."""
    outside = [array for array in arrays if memory_kind(array) not in _DEVICE_MEMORY]
    if not outside:
        return ()
    table = Table.of(
        "memory_kinds",
        by_bytes(outside),
        {
            "Path:code": lambda array: array.path,
            "Bytes per device:bytes": lambda array: array.bytes_per_device,
            "Memory": memory_kind,
        },
    )
    note = text("Moves between kinds of memory are not counted.", quiet=True)
    return (Section("host-memory", "Arrays outside device memory", (table, note)),)


def packed(arrays: Sequence[Array]) -> tuple[Block, ...]:
    """Return the arrays with several elements per byte, as JAX and as compilers count them, if any."""
    table = Table.of(
        "packed_arrays",
        by_bytes(filter(memory_kinds.is_packed, arrays)),
        {
            "Path:code": lambda array: array.path,
            "Bytes per device:bytes": lambda array: array.bytes_per_device,
            _PACKED: memory_kinds.packed_per_device,
            "Type": lambda array: array.dtype,
        },
    )
    if not table.rows:
        return ()
    note = (
        "JAX counts one byte per element of these types. A compiled program packs them, so its memory has "
        "fewer bytes."
    )
    title = "Arrays with several elements per byte"
    return (Section("packed-arrays", title, (text(note, quiet=True), table)),)


def by_bytes(arrays: Iterable[Array]) -> list[Array]:
    """Return the arrays with the most bytes per device first. Arrays with unknown bytes come last."""
    return sorted(arrays, key=lambda array: -(array.bytes_per_device or 0))


def matching(arrays: Sequence[Array], groups: Sequence[str], words: str) -> list[Array]:
    """Return the arrays of these groups that contain every word in path, type, axes or spec."""
    wanted = words.lower().split()
    return [
        array
        for array in arrays
        if array.group in groups and all(word in _searched(array) for word in wanted)
    ]


def _searched(array: Array) -> str:
    parts = (array.path, array.dtype, logical_text(array.logical_axes), array_spec_text(array))
    return " ".join(parts).lower()
