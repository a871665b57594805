"""What each device holds of one array: the hover texts of the block map and the mesh map."""

import functools
import math
from collections.abc import Sequence

from inspector.core import formatting, sharding_text
from inspector.core.snapshot import Array
from inspector.figures import frame
from inspector.figures.block_grid import PlacedArray
from inspector.figures.mesh_layout import coordinates_text, known_processes

_MANY_REPLICAS = 9  # with more, all holders of a block get the same list of devices


def bytes_of(array: Array, extents: Sequence[int]) -> int | None:
    """Return the bytes of a piece of the array with this shape; None if they are unknown."""
    elements = math.prod(array.shape or ())
    if array.bytes is None or array.shape is None:
        return None
    return array.bytes * math.prod(extents) // elements if elements else 0


def about(array: Array, count: int = 1) -> list[str]:
    """Return `4 × 64×32 float32`, and `(embed, mlp) → P('fsdp', 'tensor')`; `count` are alike."""
    times = f"{count} × " if count > 1 else ""
    logical = formatting.logical_text(array.logical_axes)
    return [
        f"{times}{formatting.shape_text(array.shape)} {array.dtype}",
        f"{f'{logical} → ' if logical else ''}{sharding_text.spec_text(array.spec)}",
    ]


def hover_of_blocks(on_mesh: PlacedArray) -> list[str]:
    """Return for each block: its index ranges, shard shape, bytes, devices and processes. Escaped."""
    process = dict(zip(on_mesh.mesh.devices, known_processes(on_mesh.mesh) or (), strict=False))
    texts = []
    for number, devices in enumerate(on_mesh.holders):
        count = formatting.counted(len(devices), "device")
        lines = [
            f"block {number} of {on_mesh.placement.blocks}",
            *_pieces(on_mesh)[number],
            f"on {count}: {formatting.devices_text(devices, most=8)}",
        ]
        if process:
            owners = sorted({process[device] for device in devices})
            noun = "process" if len(owners) == 1 else "processes"
            lines.append(f"{noun} {formatting.devices_text(owners, most=8)}")
        texts.append(frame.hover(lines))
    return texts


def hover_of_devices(on_mesh: PlacedArray, positions: Sequence[int], folded: Sequence[int] = ()) -> list[str]:
    """Return for each device: its coordinates, the block that it holds, and its other holders. Escaped.

    One device represents all others along the `folded` mesh axes.
    """
    mesh, placement = on_mesh.mesh, on_mesh.placement
    processes = known_processes(mesh)
    shared: dict[int, str] = {}  # the list of devices, for blocks with many replicas
    texts = []
    for position in positions:
        device, number = mesh.devices[position], int(placement.block[position])
        holders = on_mesh.holders[number]
        if len(holders) > _MANY_REPLICAS:
            if number not in shared:
                shared[number] = formatting.devices_text(holders, most=8)
            others = f"of {len(holders):,}, on {shared[number]}"
        else:
            rest = [other for other in holders if other != device]
            also = f"also on {formatting.devices_text(rest, most=8)}"
            others = f"of {len(holders)}, {also if rest else 'no other copy'}"
        place = coordinates_text(mesh, position, folded)
        lines = [
            f"{place}: as device {device}" if folded else f"device {device} · {place}",
            f"block {number} of {placement.blocks}",
            *_pieces(on_mesh)[number],
            f"replica {placement.replica[position]} {others}",
        ]
        if processes is not None and not folded:
            lines.append(f"process {processes[position]}")
        texts.append(frame.hover(lines))
    return texts


@functools.lru_cache(4)
def _pieces(on_mesh: PlacedArray) -> list[list[str]]:
    """Return for each block its index ranges, shape and bytes, once for the maps of blocks and devices."""
    array, placement = on_mesh.array, on_mesh.placement
    dtype = formatting.dtype_text(array.dtype)
    texts = []
    for starts, stops in zip(
        placement.starts[on_mesh.first].tolist(),
        placement.stops[on_mesh.first].tolist(),
        strict=True,
    ):
        extents = [stop - start for start, stop in zip(starts, stops, strict=True)]
        size = formatting.exact_bytes_text(bytes_of(array, extents))
        ranges = formatting.ranges_text(list(zip(starts, stops, strict=True)))
        texts.append([f"index {ranges}", f"shard {formatting.shape_text(extents)} {dtype}, {size}"])
    return texts
