"""TPU slices of a mesh, which the data center network (DCN) joins, from `Mesh.slice_index`."""

import numpy as np

from inspector.core.snapshot import Mesh

DCN = "dcn"  # the network of a Collective between slices


def slices_of(mesh: Mesh) -> np.ndarray | None:
    """Return (devices,) the slice of each device in mesh order, numbered from 0.

    Return None for one slice, or if the indices are missing or invalid: each slice must have as many devices.
    """
    if mesh.slice_index is None or len(mesh.slice_index) != mesh.size:
        return None
    names, numbers, counts = np.unique(mesh.slice_index, return_inverse=True, return_counts=True)
    return numbers if len(names) > 1 and len(set(counts.tolist())) == 1 else None


def crossing_axes(mesh: Mesh) -> tuple[str, ...]:
    """Return the mesh axes along which the slice changes, in mesh order; () for one slice."""
    slices = slices_of(mesh)
    if slices is None:
        return ()
    stride, crossing = mesh.size, []
    for axis in mesh.axes:
        # Not reshaped to the mesh: NumPy allows 64 dimensions.
        stride //= axis.size
        along = slices.reshape(-1, axis.size, stride)
        if (along != along[:, :1]).any():
            crossing.append(axis.name)
    return tuple(crossing)
