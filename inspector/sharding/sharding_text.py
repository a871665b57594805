"""Format the shardings of arrays, the axes of meshes, and what a PartitionSpec omits or JAX refuses."""

from collections.abc import Iterator

from inspector.records.snapshot import Array, Mesh, OperandType, ShardingError, Spec
from inspector.text.formatting import and_text, mesh_axes_text, mesh_sizes_text


def inside_shard_map(array: Array) -> str | None:
    """Return how a value inside a `shard_map` is placed. Return None for another array."""
    if array.shard_map is None or not (manual := array.shard_map.manual_axes):
        return None
    axes = f"mesh {'axis' if len(manual) == 1 else 'axes'} {and_text(manual)}"
    text = f"{array.path} is inside a shard_map: along {axes} each device has its own values of this shape"
    others = [
        f"dimension {number} over {and_text(names)}"
        for number, names in enumerate(array.shard_map.other_axes)
        if names
    ]
    return f"{text}. Other mesh axes shard {', '.join(others)}." if others else f"{text}."


def notes(array: Array) -> Iterator[str]:
    """Yield sentences about the placement of an array that its shard map cannot show."""
    if array.unreduced:
        yield (
            f"Unreduced over {and_text(array.unreduced)}: devices that differ only there hold partial sums, "
            "not copies."
        )
    if array.mesh_axes:
        sizes = ", ".join(f"{name} {size}" for name, size in array.mesh_axes.items())
        yield f"On another mesh, with the axes {sizes}. Its shards are listed by device."


def refusal_text(error: ShardingError) -> str:
    """Return the operation, its source line, its operands and JAX's message."""
    place = f" at {error.source}" if error.source else ""
    operands = "".join(f", {operand.name} {type_text(operand)}" for operand in error.operands)
    return f"JAX refuses {error.operation or 'the program'}{place}{operands}: {error.message}"


def type_text(operand: OperandType) -> str:
    """Return a type as JAX prints it: `float32[8@data,1024]`."""
    dimensions = [
        f"{size}@{axes[0] if len(axes) == 1 else '(' + ','.join(axes) + ')'}" if axes else str(size)
        for size, axes in zip(operand.shape, operand.spec, strict=True)
    ]
    return f"{operand.dtype}[{','.join(dimensions)}]"


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
