"""Replicated arrays that no axis of this mesh divides, and the mesh of as many devices that would."""

import math
from collections.abc import Iterator, Sequence

from inspector.checks.audit.context import AuditContext, finding, fold_text, largest
from inspector.compiled.hlo.mesh_groups import primes_of
from inspector.core.folding import Fold, fold
from inspector.core.formatting import and_text, counted
from inspector.core.snapshot import Array, Finding

CODE = "no-axis-divides"
_GROUPS = ("params", "opt_state", "other", "cache")


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per large array, and one for the rest."""
    candidates = []
    for folded in fold(array for array in context.of_group(*_GROUPS) if _is_whole(context, array)):
        parts = largest_split(folded.first.shape or (), context.mesh.size)
        ways = math.prod(parts)
        held = folded.bytes_per_device or 0
        candidates.append((held - held // ways if ways > 1 else held, folded))
    single, rest = largest(candidates, context.least)
    for _, folded in single:
        yield _single(context, folded)
    if rest:
        count = sum(folded.count for _, folded in rest)
        whole = context.held_text(array for _, folded in rest for array in folded.arrays)
        message = (
            f"No axis of the mesh divides a dimension of {counted(count, 'smaller array')}: every device "
            f"holds {whole} of them."
        )
        yield finding("note", CODE, message, folds=[folded for _, folded in rest])


def _is_whole(context: AuditContext, array: Array) -> bool:
    """Return whether every device holds the array, and no mesh axis larger than 1 divides a dimension."""
    return (
        context.is_replicated(array)
        and array.spec is not None
        and max(array.shape or (0,)) > 1
        and context.finest(array)[1] == ()
    )


def _single(context: AuditContext, folded: Fold) -> Finding:
    shape, devices = folded.first.shape or (), context.mesh.size
    parts = largest_split(shape, devices)
    ways = math.prod(parts)
    held = folded.bytes_per_device or 0
    axes = [axis for axis in context.mesh.axes if axis.size > 1]
    named = and_text([f"{axis.name} ({axis.size})" for axis in axes], "or")
    sizes = " × ".join(map(str, shape))
    message = (
        f"{fold_text(folded)} is whole on all {devices} devices, {context.amount(held)} on each: no "
        f"dimension of {sizes} is a multiple of {named}."
    )
    if ways == 1:
        size = min(axis.size for axis in axes)
        remedy = f"Pad a dimension to a multiple of {size}."
        return finding("note", CODE, message, folds=[folded], remedy=remedy)
    split = [(number, count) for number, count in enumerate(parts) if count > 1]
    places = and_text([f"{count} parts of dimension {number}" for number, count in split])
    mesh = [count for _, count in split] + ([devices // ways] if ways < devices else [])
    remedy = f"A mesh {' × '.join(map(str, mesh))} divides it into {places}."
    return finding("note", CODE, message, folds=[folded], saved=held - held // ways, remedy=remedy)


def largest_split(shape: Sequence[int], devices: int) -> tuple[int, ...]:
    """Return the parts of each dimension in the most even parts that a mesh of this many devices allows."""
    splits = {(1,) * len(shape)}
    for prime in primes_of(devices):
        splits |= {
            (*split[:number], split[number] * prime, *split[number + 1 :])
            for split in splits
            for number, size in enumerate(shape)
            if size and size % (split[number] * prime) == 0
        }
    # On a tie, the fewest dimensions.
    return max(splits, key=lambda split: (math.prod(split), sum(count == 1 for count in split)))
