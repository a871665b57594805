"""A mesh too large to draw: axes along which a picture stays the same are drawn once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from inspector.core.snapshot import Mesh
from inspector.figures.holdings import axes_shown

MOST_CELLS = 9_216  # the chips of the largest slice that can be bought, of TPU 7x


def folded_axes(mesh: Mesh, drawn: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The numbers of the mesh axes that are drawn once; none of a mesh of at most `MOST_CELLS` devices.

    Args:
      drawn: (devices,) each, what is drawn of every device, in mesh order.
    """
    if mesh.size <= MOST_CELLS or not drawn:
        return ()
    axes = [axis for axis in axes_shown(mesh) if mesh.shape[axis] > 1]
    grids = [values.reshape([mesh.shape[axis] for axis in axes]) for values in drawn]
    return tuple(
        axis
        for place, axis in enumerate(axes)
        if all(np.array_equal(np.roll(grid, 1, place), grid) for grid in grids)
    )


def cells(mesh: Mesh, folded: Sequence[int]) -> int:
    """How many cells are drawn of the mesh."""
    return mesh.size // devices_a_cell(mesh, folded)


def devices_a_cell(mesh: Mesh, folded: Sequence[int]) -> int:
    """How many devices each cell stands for."""
    return math.prod(mesh.shape[axis] for axis in folded)


def text(mesh: Mesh, folded: Sequence[int]) -> str:
    """That axes are folded, in words; empty if none are."""
    if not folded:
        return ""
    names = " × ".join(f"{mesh.axes[axis].name} ({mesh.shape[axis]:,})" for axis in folded)
    return f"equal along {names}: each cell is {devices_a_cell(mesh, folded):,} devices"
