"""Dimensions that their mesh axes do not divide: refused for arrays, padded inside a program."""

from __future__ import annotations

import math

from inspector.checks.audit.examined import Examined, finding, subject, worth_telling
from inspector.core import sharding
from inspector.core.folding import Fold, fold
from inspector.core.formatting import shape_text
from inspector.core.snapshot import Array, Finding
from inspector.layout.plan import INDIVISIBLE

WHAT = "uneven and padded shards"

UNEVEN = "uneven-shards"
PADDED = "padded-shards"

_OF_THE_COMPILER = ("activation", "gradient")


def findings(examined: Examined) -> list[Finding]:
    """Arrays that JAX would refuse, values that the compiler pads, and shards of different sizes."""
    told = {one.array for one in examined.found.findings if one.code == INDIVISIBLE}
    by_spec = [array for array in examined.arrays if array.spec and array.shards is None]
    uneven = [
        array
        for array in by_spec
        if array.spec and any(sharding.indivisible(array.shape, array.spec, examined.mesh))
    ]
    padded = [array for array in uneven if array.group in _OF_THE_COMPILER]
    refused = fold(array for array in uneven if array not in padded)
    return [
        # A plan tells of a fold once, by its first array.
        *(
            _refused(examined, one)
            for one in refused
            if told.isdisjoint(array.path for array in one.arrays)
        ),
        *_padded(examined, fold(padded)),
        *_of_different_sizes(examined),
    ]


def padding_bytes(array: Array, examined: Examined) -> int:
    """Bytes a device of a value whose shards are padded to equal sizes, beyond its equal share."""
    if array.spec is None or not array.bytes or not math.prod(array.shape):
        return 0
    ways = sharding.ways_per_dimension(array.spec, examined.mesh)
    padded = math.prod(-(-size // way) for size, way in zip(array.shape, ways, strict=True))
    itemsize = array.bytes / math.prod(array.shape)
    return round(padded * itemsize - array.bytes / math.prod(ways))


def _refused(examined: Examined, one: Fold) -> Finding:
    array = one.first
    uneven = next(sharding.indivisible(array.shape, array.spec or (), examined.mesh))
    name = array.logical_axes[uneven.dimension] if array.logical_axes else None
    return finding(
        "error",
        INDIVISIBLE,
        f"{name or f'dimension {uneven.dimension}'} has {uneven.size} rows, {uneven.ways} ways "
        f"({' × '.join(uneven.axes)}) do not divide it in {subject(one)}; JAX refuses such an array.",
        folds=[one],
    )


def _padded(examined: Examined, folds: tuple[Fold, ...]) -> list[Finding]:
    candidates = [
        (sum(padding_bytes(array, examined) for array in one.arrays), one) for one in folds
    ]
    alone, _ = worth_telling(candidates, examined.least)
    return [
        finding(
            "note",
            PADDED,
            f"{subject(one)}, {shape_text(one.first.shape)}, is not divided evenly by the mesh axes that "
            f"the compiler splits it over, so every device stores and "
            f"computes padding: {examined.amount(padding)} of each device.",
            folds=[one],
            saved=padding,
            remedy="Make its size a multiple of the number of parts.",
        )
        for padding, one in alone
    ]


def _of_different_sizes(examined: Examined) -> list[Finding]:
    found = []
    for one in fold(array for array in examined.arrays if array.shards):
        sizes = {
            tuple(stop - start for start, stop in shard.index) for shard in one.first.shards or ()
        }
        if len(sizes) < 2:
            continue
        elements = math.prod(one.first.shape)
        largest = max(math.prod(size) for size in sizes)
        smallest = min(math.prod(size) for size in sizes)
        itemsize = (one.first.bytes or 0) / elements if elements else 0
        more = round((largest - smallest) * itemsize) * one.count
        if more < examined.least:
            continue
        found.append(
            finding(
                "note",
                UNEVEN,
                f"The shards of {subject(one)} have {len(sizes)} different shapes: the largest has "
                f"{largest:,} elements, the smallest {smallest:,}. The devices with the largest decide how "
                f"long a step takes and whether it fits; they hold {examined.amount(more)} more.",
                folds=[one],
            )
        )
    return found
