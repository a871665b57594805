"""Dimensions that their mesh axes do not divide: JAX rejects them for arrays and pads them inside jit."""

from __future__ import annotations

import math

from inspector.checks.audit.context import AuditContext, finding, fold_text, largest
from inspector.core import sharding
from inspector.core.folding import Fold, fold
from inspector.core.formatting import shape_text
from inspector.core.snapshot import Array, Finding
from inspector.layout.plan import INDIVISIBLE

UNEVEN = "uneven-shards"
PADDED = "padded-shards"
# `INDIVISIBLE` belongs to the plan, which an audit does not replace.
CODES = (UNEVEN, PADDED)

_INSIDE_STEP = ("activation", "gradient")


def findings(context: AuditContext) -> list[Finding]:
    """Return arrays that JAX rejects, values that the compiler pads, and shards of different sizes."""
    reported = {one.array for one in context.snapshot.findings if one.code == INDIVISIBLE}
    uneven = [
        array
        for array in context.arrays
        if array.spec
        and array.shards is None
        and any(sharding.indivisible(array.shape, array.spec, context.mesh))
    ]
    padded = fold(array for array in uneven if array.group in _INSIDE_STEP)
    rejected = fold(array for array in uneven if array.group not in _INSIDE_STEP)
    return [
        # A plan reports a fold once, by its first array.
        *(
            _rejected(context, one)
            for one in rejected
            if reported.isdisjoint(array.path for array in one.arrays)
        ),
        *_padded(context, padded),
        *_of_different_sizes(context),
    ]


def _padding_bytes(array: Array, context: AuditContext) -> int:
    """Return the bytes of padding per device."""
    if array.spec is None or not array.bytes or not math.prod(array.shape):
        return 0
    ways = sharding.ways_per_dimension(array.spec, context.mesh)
    padded = math.prod(-(-size // way) for size, way in zip(array.shape, ways, strict=True))
    itemsize = array.bytes / math.prod(array.shape)
    return round(padded * itemsize - array.bytes / math.prod(ways))


def _rejected(context: AuditContext, one: Fold) -> Finding:
    array = one.first
    uneven = next(sharding.indivisible(array.shape, array.spec or (), context.mesh))
    name = array.logical_axes[uneven.dimension] if array.logical_axes else None
    message = f"{fold_text(one)}: {uneven.text(name)}. JAX rejects this array."
    return finding("error", INDIVISIBLE, message, folds=[one])


def _padded(context: AuditContext, folds: tuple[Fold, ...]) -> list[Finding]:
    single, _ = largest(
        ((sum(_padding_bytes(array, context) for array in one.arrays), one) for one in folds),
        context.least,
    )
    return [
        finding(
            "note",
            PADDED,
            f"{fold_text(one)}, {shape_text(one.first.shape)}, is not divided evenly by its mesh axes: each "
            f"device stores and computes {context.amount(padding)} of padding.",
            folds=[one],
            saved=padding,
            remedy="Make its size a multiple of the number of parts.",
        )
        for padding, one in single
    ]


def _of_different_sizes(context: AuditContext) -> list[Finding]:
    found = []
    for one in fold(array for array in context.arrays if array.shards):
        shapes = {
            tuple(stop - start for start, stop in shard.index) for shard in one.first.shards or ()
        }
        sizes = [math.prod(shape) for shape in shapes]
        elements = math.prod(one.first.shape)
        itemsize = (one.first.bytes or 0) / elements if elements else 0
        more = round((max(sizes) - min(sizes)) * itemsize) * one.count
        if len(shapes) < 2 or more < context.least:
            continue
        message = (
            f"{fold_text(one)} has shards of {len(shapes)} shapes, from {min(sizes):,} to {max(sizes):,} "
            f"elements. Devices with the largest hold {context.amount(more)} more and set the step time."
        )
        found.append(finding("note", UNEVEN, message, folds=[one]))
    return found
