"""The shard of each device under a sharding of XLA or Shardy, also one that no PartitionSpec expresses."""

from collections.abc import Sequence

from inspector.compiled.hlo import shardings
from inspector.compiled.hlo.shardings import HloSharding
from inspector.core.snapshot import Shard


def shards_of(
    sharding: HloSharding,
    shape: tuple[int, ...],
    devices: Sequence[int],
    positions: Sequence[int] | None = None,
) -> tuple[Shard, ...]:
    """Return the shard of each device in mesh order. XLA pads the last shard of an uneven dimension.

    Args:
      devices: the ids of the mesh's devices in mesh order.
      positions: the position of each in the device assignment; None if they are 0, 1, 2 …
    """
    rank = len(shape)
    tiles = shardings.indices(sharding, rank, len(devices))
    ways = (*sharding.ways, *(1,) * rank)
    pieces = [-(-size // n) for size, n in zip(shape, ways, strict=False)]
    seen: dict[tuple[int, ...], int] = {}
    shards = []
    for device, position in zip(devices, positions or range(len(devices)), strict=True):
        block = tuple(tiles[position].tolist())
        index = tuple(
            (min(at * piece, size), min((at + 1) * piece, size))
            for at, piece, size in zip(block, pieces, shape, strict=True)
        )
        seen[block] = seen.get(block, -1) + 1
        shards.append(Shard(device, index, seen[block]))
    return tuple(shards)
