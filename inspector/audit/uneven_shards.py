"""Devices that hold more than they can, more than others, or padding.

JAX rejects uneven dimensions of arrays, and XLA pads them inside jit.
"""

import math
from collections.abc import Iterator

import numpy as np

from inspector.audit.context import LEAST_BYTES, AuditContext, finding, fold_text, largest
from inspector.layout.plan import INDIVISIBLE
from inspector.machines import out_of_memory, targets
from inspector.machines.hardware import Chip
from inspector.prediction.memory import fit
from inspector.records.snapshot import Array, Finding, Snapshot
from inspector.sharding import placement
from inspector.sharding.folding import Fold, fold
from inspector.sharding.totals import shard_bytes, state_title
from inspector.text.formatting import bytes_text, counted, devices_text, shape_text

TOO_LARGE = "does-not-fit"
TOO_LARGE_CODES = (TOO_LARGE, out_of_memory.CODE)


def too_large_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield an error if the layout does not fit into a device of the chip that it is for."""
    yield from on_chip(snapshot, targets.chip_for(snapshot, None))


def knows_memory(snapshot: Snapshot) -> bool:
    """Return whether the chip and the memory that is needed are known."""
    return fit(snapshot, targets.chip_for(snapshot, None)).fits is not None


def on_chip(snapshot: Snapshot, chip: Chip | None) -> Iterator[Finding]:
    """Yield an error if the layout does not fit into a device of this chip, unless a compiler has said so."""
    if chip is None or out_of_memory.findings(snapshot):
        return
    memory = fit(snapshot, chip)
    need = memory.need
    if need is not None and need.fits is False and need.capacity_bytes is not None:
        least = {"state": "at least ", "estimate": "about "}.get(memory.basis, "")
        needed, available = need.peak_bytes, need.capacity_bytes
        message = (
            f"The layout does not fit: it needs {least}{bytes_text(needed)} on one device of "
            f"{chip.title}, which has {bytes_text(available)}."
        )
        yield Finding("error", TOO_LARGE, message, program=need.program, needed=needed, available=available)


UNEVEN = "uneven-shards"
PADDED = "padded-shards"
IMBALANCE = "imbalance"

# How far the fullest device may be above the mean.
_MOST_IMBALANCE = 0.05

_INSIDE_STEP = ("activation", "gradient")


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield arrays that JAX rejects, values that the compiler pads, and shards of different sizes."""
    reported = {finding.array for finding in context.snapshot.findings if finding.code == INDIVISIBLE}
    uneven = [
        array
        for array in context.arrays
        if array.spec
        and array.shape is not None
        and array.shards is None
        and any(placement.indivisible(array.shape, array.spec, context.mesh))
    ]
    for folded in fold(array for array in uneven if array.group not in _INSIDE_STEP):
        # A plan reports a fold once, by its first array.
        if reported.isdisjoint(array.path for array in folded.arrays):
            yield _rejected(context, folded)
    padded = fold(array for array in uneven if array.group in _INSIDE_STEP)
    single, _ = largest(
        ((sum(_padding_bytes(array, context) for array in folded.arrays), folded) for folded in padded),
        context.least,
    )
    remedy = "Make its size a multiple of the number of parts."
    for padding, folded in single:
        message = (
            f"{fold_text(folded)}, {shape_text(folded.first.shape)}, is not divided evenly by its "
            f"mesh axes: each device stores and computes {context.amount(padding)} of padding."
        )
        yield finding("note", PADDED, message, folds=[folded], saved=padding, remedy=remedy)
    yield from _of_different_sizes(context)


def _padding_bytes(array: Array, context: AuditContext) -> int:
    """Return the bytes of padding per device."""
    if array.spec is None or array.shape is None or not array.bytes or not array.elements:
        return 0
    ways = placement.ways_per_dimension(array.spec, context.mesh)
    padded = math.prod(-(-size // way) for size, way in zip(array.shape, ways, strict=True))
    itemsize = array.bytes / array.elements
    return round(padded * itemsize - array.bytes / math.prod(ways))


def _rejected(context: AuditContext, fold: Fold) -> Finding:
    array = fold.first
    uneven = next(placement.indivisible(array.shape or (), array.spec or (), context.mesh))
    name = array.logical_axes[uneven.dimension] if array.logical_axes else None
    message = f"{fold_text(fold)}: {uneven.text(name)}. JAX rejects this array."
    return finding("error", INDIVISIBLE, message, folds=[fold])


def _of_different_sizes(context: AuditContext) -> Iterator[Finding]:
    for folded in fold(array for array in context.arrays if array.shards):
        shapes = {tuple(stop - start for start, stop in shard.index) for shard in folded.first.shards or ()}
        sizes = [math.prod(shape) for shape in shapes]
        itemsize = (folded.first.bytes or 0) / (folded.first.elements or 1)
        more = round((max(sizes) - min(sizes)) * itemsize) * folded.count
        if len(shapes) < 2 or more < context.least:
            continue
        message = (
            f"{fold_text(folded)} has shards of {len(shapes)} shapes, from {min(sizes):,} to {max(sizes):,} "
            f"elements. Devices with the largest hold {context.amount(more)} more and set the step time."
        )
        yield finding("note", UNEVEN, message, folds=[folded])


def imbalance_findings(context: AuditContext) -> list[Finding]:
    """Return one finding if the fullest device is well above the mean."""
    sizes = _state_bytes_by_device(context)
    if sizes is None or not sizes.size or sizes.mean() == 0:
        return []
    most, mean = int(sizes.max()), int(sizes.mean())
    more = int(sizes.max() - sizes.mean())
    if more <= _MOST_IMBALANCE * sizes.mean() or more < LEAST_BYTES:
        return []
    fullest = [context.mesh.devices[at] for at in np.flatnonzero(sizes == sizes.max()).tolist()]
    several = f"Devices {devices_text(fullest)} hold"
    subject = f"Device {fullest[0]} holds" if len(fullest) == 1 else several
    state = " of train state" if state_title(context.snapshot) == "Train state" else ""
    message = f"{subject} {context.amount(most)}{state}; the mean is {context.amount(mean)}."
    alone = [array for array in context.state if {*shard_bytes([array])} == {*fullest}]
    if alone:
        first, size = max(alone, key=lambda array: array.bytes or 0), sum(array.bytes or 0 for array in alone)
        count = counted(len(alone), "array")
        message += f" On no other device: {count} of {context.amount(size)}, such as {first.path}."
    return [finding("warning", IMBALANCE, message, saved=more)]


def _state_bytes_by_device(context: AuditContext) -> np.ndarray | None:
    """Return the bytes of train state per device, in mesh order, or None if a placement is unknown."""
    position = {device: at for at, device in enumerate(context.mesh.devices)}
    sizes = np.zeros(context.mesh.size)
    for array in context.state:
        if array.shards is not None and array.bytes is not None:
            for device, size in shard_bytes([array]).items():
                if device in position:
                    sizes[position[device]] += size
        elif array.bytes_per_device is not None:
            sizes += array.bytes_per_device
        else:
            return None
    return sizes
