"""Facts about the placement of an array that a PartitionSpec omits, in sentences."""

from collections.abc import Iterator

from inspector.core.formatting import and_text
from inspector.core.snapshot import Array


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
