"""Format the shardings of arrays and the axes of meshes."""

from inspector.core.formatting import mesh_axes_text, mesh_sizes_text
from inspector.core.snapshot import Array, Mesh, Spec


def spec_text(spec: Spec | None) -> str:
    """Return a PartitionSpec as JAX prints it: `P(('fsdp', 'tensor'), None)`, `unknown` for None."""
    if spec is None:
        return "unknown"
    return f"P({', '.join(_entry_text(axes) for axes in spec)})"


def array_spec_text(array: Array) -> str:
    """Return the PartitionSpec of an array as JAX prints it, with its unreduced mesh axes.

    If only its shards are known, return their places: `device 0`, or `8 listed shards`.
    """
    if array.spec is None and array.shards:
        one = len(array.shards) == 1
        return f"device {array.shards[0].device}" if one else f"{len(array.shards)} listed shards"
    text = spec_text(array.spec)
    if array.spec is None or not array.unreduced:
        return text
    inside = text[2:-1]
    named = ", ".join(map(repr, array.unreduced))
    return f"P({inside}{', ' if inside else ''}unreduced={{{named}}})"


def mesh_text(mesh: Mesh | None, *, max_axes_of_size_1: int = 3) -> str:
    """Return the mesh axes and their sizes: `data 2 × model 4`, `unknown` for None.

    If too many axes have size 1, they are counted: `fsdp 16, and 11 axes of size 1`.
    """
    if mesh is None:
        return "unknown"
    sizes = [axis.size for axis in mesh.axes]
    return mesh_sizes_text(mesh.axis_names, sizes, max_axes_of_size_1=max_axes_of_size_1) or "one device"


def dimension_text(array: Array, mesh: Mesh, dimension: int) -> str:
    """Return a dimension and its sharding: `dim 1 · hidden · 1024 ÷ 4 over model`."""
    name = array.logical_axes[dimension] if array.logical_axes is not None else None
    size = "unknown" if array.shape is None else str(array.shape[dimension])
    spec = array.spec or ()
    axes = spec[dimension] if dimension < len(spec) else None
    if axes:
        size += f" ÷ {mesh.ways(axes)} over {mesh_axes_text(axes)}"
    return " · ".join(filter(None, (f"dim {dimension}", name, size)))


def _entry_text(axes: tuple[str, ...] | None) -> str:
    if not axes:
        return "None"
    return repr(axes[0]) if len(axes) == 1 else f"({', '.join(map(repr, axes))})"
