"""What a PartitionSpec does not say about the placement of an array, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inspector.core.formatting import and_text
from inspector.core.snapshot import Array


def inside_shard_map(array: Array) -> str | None:
    """Return how a value inside a `shard_map` is placed. Return None for another array."""
    found = array.extra.get("shard_map")
    if not isinstance(found, dict) or not (manual := _names(found.get("manual_axes"))):
        return None
    axes = f"mesh {'axis' if len(manual) == 1 else 'axes'} {and_text(manual)}"
    text = f"{array.path} is inside a shard_map: along {axes} each device has its own values of this shape"
    others = [
        f"dimension {number} over {and_text(names)}"
        for number, entry in enumerate(found.get("other_axes") or ())
        if (names := _names(entry))
    ]
    return f"{text}. Other mesh axes shard {', '.join(others)}." if others else f"{text}."


def notes(array: Array) -> Iterator[str]:
    """Yield sentences about the placement of an array that its shard map cannot show."""
    if unreduced := _names(array.extra.get("unreduced")):
        yield (
            f"Unreduced over {and_text(unreduced)}: devices that differ only there hold partial sums, not "
            "copies."
        )
    mesh = array.extra.get("mesh_axes")
    if isinstance(mesh, dict) and mesh:
        sizes = ", ".join(f"{name} {size}" for name, size in mesh.items())
        yield f"On another mesh, with the axes {sizes}. Its shards are listed by device."


def _names(value: Any) -> list[str]:
    return (
        [one for one in value if isinstance(one, str)] if isinstance(value, (list, tuple)) else []
    )
