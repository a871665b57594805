"""What each device holds of one array, in words: the hover text of block map and mesh map."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from inspector.core import formatting, sharding
from inspector.core.sharding import Placement
from inspector.core.snapshot import Array, Mesh
from inspector.figures import labels

_MANY_REPLICAS = 9  # of more, who else holds a block is said of all at once
_FEW_AXES = 3  # with more, a heading of all of them does not fit beside another picture


def bytes_of(array: Array, extents: Sequence[int]) -> int | None:
    """Bytes of a piece of the array with this shape; None where the array's bytes are not known."""
    elements = math.prod(array.shape)
    if array.bytes is None:
        return None
    return array.bytes * math.prod(extents) // elements if elements else 0


def axes_shown(mesh: Mesh) -> tuple[int, ...]:
    """The numbers of the mesh axes that a picture has room for: all of a few.

    Of many those longer than 1, for frameworks give a dozen axes names of which two or three are used.
    """
    every = tuple(range(len(mesh.axes)))
    if len(every) <= _FEW_AXES:
        return every
    return tuple(number for number in every if mesh.axes[number].size > 1) or every[:1]


def coordinates_text(mesh: Mesh, position: int, folded: Sequence[int] = ()) -> str:
    """Where a device is on the mesh: `data 0, model 3`; along folded axes it stands for `all of data`."""
    shown = axes_shown(mesh)
    place = np.unravel_index(position, [mesh.axes[number].size for number in shown])
    return ", ".join(
        f"all of {mesh.axes[number].name}" if number in folded else f"{mesh.axes[number].name} {at}"
        for number, at in zip(shown, place, strict=True)
    )


def hover_of_blocks(array: Array, mesh: Mesh, placement: Placement) -> list[str]:
    """For each block: index ranges, shard shape, bytes and every device that holds it. Escaped."""
    holders = sharding.devices_by_block(placement, mesh)
    process = dict(zip(mesh.devices, mesh.processes, strict=True)) if mesh.processes else None
    _, first = np.unique(placement.block, return_index=True)
    texts = []
    for number, devices in enumerate(holders):
        rows = [f"block {number} of {placement.blocks}", *_piece(array, placement, first[number])]
        rows.append(
            f"on {_count(len(devices), 'device')}: {formatting.devices_text(devices, most=8)}"
        )
        if process is not None:
            rows.append(_processes([process[device] for device in devices]))
        texts.append(_hover(rows))
    return texts


def hover_of_devices(
    array: Array,
    mesh: Mesh,
    placement: Placement,
    positions: Sequence[int] | None = None,
    folded: Sequence[int] = (),
) -> list[str]:
    """For devices in mesh order: where each is and what it holds, and who else does. Escaped.

    Args:
      positions: of the devices; all of them if None.
      folded: mesh axes along which all devices hold the same, and which one device stands for.
    """
    holders = sharding.devices_by_block(placement, mesh)
    together: dict[int, str] = {}  # of blocks on many devices: one text for all of them
    texts = []
    for position in range(mesh.size) if positions is None else positions:
        device, number = mesh.devices[position], int(placement.block[position])
        held = holders[number]
        if len(held) > _MANY_REPLICAS:
            if number not in together:
                together[number] = formatting.devices_text(held, most=8)
            who = f"of {len(held):,}, on {together[number]}"
        else:
            others = [other for other in held if other != device]
            also = f"also on {formatting.devices_text(others, most=8)}"
            who = f"of {len(held)}, {also if others else 'held nowhere else'}"
        where = coordinates_text(mesh, position, folded)
        rows = [
            f"{where}: as device {device}" if folded else f"device {device} · {where}",
            f"block {number} of {placement.blocks}",
            *_piece(array, placement, position),
            f"replica {placement.replica[position]} {who}",
        ]
        if mesh.processes and not folded:
            rows.append(f"process {mesh.processes[position]}")
        texts.append(_hover(rows))
    return texts


def _piece(array: Array, placement: Placement, position: int) -> list[str]:
    starts, stops = placement.starts[position].tolist(), placement.stops[position].tolist()
    extents = [stop - start for start, stop in zip(starts, stops, strict=True)]
    index = formatting.ranges_text(list(zip(starts, stops, strict=True)))
    size = formatting.exact_bytes_text(bytes_of(array, extents))
    return [
        f"index {index}",
        f"shard {formatting.shape_text(extents)} {formatting.dtype_text(array.dtype)}, {size}",
    ]


def _processes(processes: list[int]) -> str:
    distinct = sorted(set(processes))
    noun = "process" if len(distinct) == 1 else "processes"
    return f"{noun} {formatting.devices_text(distinct, most=8)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _hover(rows: list[str]) -> str:
    first, *rest = map(labels.escape, rows)
    return "<br>".join([f"<b>{first}</b>", *rest])
