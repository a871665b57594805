"""Compute the block that belongs on each device, and check the pieces that JAX was given.

The checks compare the pieces and the shards with the sharding. They do not know the deliberate mistake.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inspector.guides import transfer
from inspector.guides.array_fields import REFUSED, result_snapshot
from inspector.guides.assembly import Assembled, Assembly, Piece, Stage
from inspector.records import typed_json
from inspector.records.snapshot import Snapshot, Spec
from inspector.sharding import placement as sharding
from inspector.sharding.placement import Placement
from inspector.text.formatting import counted, devices_text, mesh_axes_text, ranges_text, shape_text

DTYPE = "int32"  # of all arrays
WRONG_NUMBERS = "wrong-numbers"  # the code of a finding


@dataclass(frozen=True)
class Fault:
    """A mistake in the pieces, in a sentence, and the devices that it concerns."""

    sentence: str
    devices: tuple[int, ...] = ()


@dataclass(frozen=True)
class Arrival:
    """The bytes of one device after a reshard: kept bytes, and bytes from each other device."""

    device: int
    kept: int
    received: tuple[tuple[int, int], ...]  # (device, bytes), in mesh order

    @property
    def received_bytes(self) -> int:
        return sum(size for _, size in self.received)


def placement(assembly: Assembly) -> Placement | None:
    """Return the placement of the global array. None if its shape is not divisible by the mesh."""
    if any(sharding.indivisible(assembly.shape, assembly.spec, assembly.mesh())):
        return None
    return sharding.place(assembly.shape, assembly.spec, assembly.mesh())


def home_blocks(assembly: Assembly) -> np.ndarray:
    """Return the number of the block of each element, in the shape of the global array."""
    placed = placement(assembly)
    numbers = np.zeros(assembly.shape, dtype=np.int64)
    if placed is not None:
        for start, stop, block in zip(placed.starts, placed.stops, placed.block, strict=True):
            numbers[window(start, stop)] = block
    return numbers


def blocks_of_values(assembly: Assembly, values: np.ndarray) -> np.ndarray:
    """Return the block of each number, in the shape of `values`. Later batches count as the first."""
    blocks: np.ndarray = home_blocks(assembly).ravel()[values % assembly.elements]
    return blocks


def belonging(assembly: Assembly, start: Sequence[int], stop: Sequence[int]) -> np.ndarray:
    """Return the numbers that belong in these index ranges of the global array, with their shape."""
    numbers = np.arange(assembly.elements).reshape(assembly.shape)
    return numbers[window(start, stop)]


def window(start: Sequence[int], stop: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(int(low), int(high)) for low, high in zip(start, stop, strict=True))


def wrong_elements(assembly: Assembly, stage: Stage) -> dict[int, np.ndarray]:
    """Return a mask of the wrong numbers for each device that has some, in the shape of its shard."""
    by_device = {}
    for shard, held in zip(sharding.shards(stage.array, assembly.mesh()) or (), stage.contents, strict=True):
        starts, stops = zip(*shard.index, strict=True) if shard.index else ((), ())
        right = belonging(assembly, starts, stops)
        mask = np.array(held.values).reshape(held.shape) != right
        if mask.any():
            by_device[held.device] = mask
    return by_device


def faults(assembly: Assembly, assembled: Assembled) -> tuple[Fault, ...]:
    """Return the mistakes in the pieces, whether or not JAX detects them."""
    mesh = assembly.mesh()
    for spec in filter(None, (assembly.spec, assembly.target)):
        for uneven in sharding.indivisible(assembled.shape, spec, mesh):
            return (
                Fault(
                    f"{uneven.text(f'Dimension {uneven.dimension} of {shape_text(assembled.shape)}')}, "
                    "so the pieces cannot have equal shapes."
                ),
            )
    faults = [
        *(_faults_of_places(assembly, assembled.pieces) if assembly.way == "pieces" else ()),
        *(_faults_of_shapes(assembly, assembled) if assembly.way != "device_put" else ()),
        *_faults_of_dtypes(assembly, assembled.pieces),
    ]
    return tuple(faults or _faults_of_values(assembly, assembled))


def verdict(assembly: Assembly, assembled: Assembled) -> str:
    """Return a sentence on what JAX did."""
    if assembled.refusal is not None:
        doing = {
            "cut": "compute the part of each device",
            "move": "move the pieces",
            "join": "make the array",
            "reshard": "reshard the array",
        }[assembled.refusal.step]
        return f"JAX refused to {doing}."
    assert assembled.joined is not None  # JAX made the array
    wrong = wrong_elements(assembly, assembled.joined)
    if wrong:
        elements = sum(int(mask.sum()) for mask in wrong.values())
        return (
            f"JAX made the array without an error, but {counted(elements, 'number')} on "
            f"{counted(len(wrong), 'device')} ({devices_text(tuple(wrong))}) "
            f"{'is' if elements == 1 else 'are'} wrong."
        )
    if assembled.joined.array.dtype != DTYPE:
        return (
            f"JAX made the array, and every number is right, but its dtype is {assembled.joined.array.dtype}."
        )
    if any(piece.dtype != DTYPE for piece in assembled.pieces):
        return f"JAX made the array, and silently changed it to {DTYPE}; every number is right."
    on = [piece.on for piece in assembled.pieces if piece.on is not None]
    words = "JAX made the array, and every number is on the right device."
    if on != sorted(on, key=assembly.mesh().devices.index):
        words += " JAX ignores the order of the list: only the device of each piece matters."
    return words


def arrivals(assembly: Assembly, assembled: Assembled) -> tuple[Arrival, ...]:
    """Return the sources of each shard's bytes in the reshard, in mesh order.

    A device keeps the bytes that it already holds. The first device that holds another part sends it.
    """
    if assembled.joined is None or assembled.resharded is None:
        return ()
    mesh = assembly.mesh()
    before = sharding.place_array(assembled.joined.array, mesh)
    after = sharding.place_array(assembled.resharded.array, mesh)
    assert before is not None and after is not None  # both are on every device
    itemsize = np.dtype(assembled.resharded.array.dtype).itemsize
    sent = transfer.moving_elements(before, after, mesh, mesh) * itemsize
    return tuple(
        Arrival(
            device,
            sizes[device],
            tuple((source, size) for source, size in sizes.items() if size and source != device),
        )
        for device, column in zip(mesh.devices, sent.T.tolist(), strict=True)
        for sizes in [dict(zip(mesh.devices, column, strict=True))]
    )


def _spec_in_words(spec: Spec) -> str:
    """Return how a spec shards an array: `dimension 0 cut over x × y`, `nothing cut`."""
    parts = [
        f"dimension {dimension} cut over {mesh_axes_text(axes)}"
        for dimension, axes in enumerate(spec)
        if axes
    ]
    return " and ".join(parts) or "nothing cut"


def _faults_of_places(assembly: Assembly, pieces: Sequence[Piece]) -> list[Fault]:
    """Return mistakes about devices without a piece and devices with several pieces."""
    on: dict[int, list[int]] = {device: [] for device in assembly.mesh().devices}
    for number, piece in enumerate(pieces):
        if piece.on is not None:
            on.setdefault(piece.on, []).append(number)
    crowded = {device: numbers for device, numbers in on.items() if len(numbers) > 1}
    empty = tuple(device for device, numbers in on.items() if not numbers)
    if crowded:
        device, numbers = next(iter(crowded.items()))
        few = len(numbers) <= 4
        which = f"Pieces {' and '.join(map(str, numbers))}" if few else f"{len(numbers)} pieces"
        lacking = f", and {_devices(empty)} {_has(empty)} none" if empty else ""
        return [Fault(f"{which} are on device {device}{lacking}.", (*crowded, *empty))]
    if empty:
        text = (
            f"{_devices(empty).capitalize()} {_has(empty)} no piece: every device of the mesh must "
            "have exactly one, also a device that holds a copy."
        )
        return [Fault(text, empty)]
    return []


def _faults_of_shapes(assembly: Assembly, assembled: Assembled) -> list[Fault]:
    wrong_shapes = []
    needed = sharding.shard_shape(assembled.shape, assembly.spec, assembly.mesh())
    if nothing := _meant(piece for piece in assembled.pieces if piece.shape is None):
        text = (
            f"The callback returned None for {_devices(nothing)}, but must return "
            f"{shape_text(needed)} {DTYPE}."
        )
        wrong_shapes.append(Fault(text, nothing))
    if wrong := [piece for piece in assembled.pieces if piece.shape not in (needed, None)]:
        meant = _meant(wrong)
        which = f"The piece for {_devices(meant)} is"
        if len(wrong) > 1:
            which = f"The pieces for {_devices(meant)} are"
            if len(wrong) == len(assembled.pieces):
                which = f"All {len(wrong)} pieces are"
        text = (
            f"{which} {shape_text(wrong[0].shape or ())}, but each must be {shape_text(needed)}: "
            f"that is {shape_text(assembled.shape)} with {_spec_in_words(assembly.spec)}."
        )
        wrong_shapes.append(Fault(text, meant))
    return wrong_shapes


def _faults_of_dtypes(assembly: Assembly, pieces: Sequence[Piece]) -> list[Fault]:
    other = [piece for piece in pieces if piece.dtype not in (DTYPE, "None")]
    if not other:
        return []
    if assembly.way == "device_put":
        return [Fault(f"The host array is {other[0].dtype}, not JAX's default {DTYPE}.")]
    rest = f"{'it must be' if len(other) == len(pieces) else 'the others are'} {DTYPE}"
    meant = _meant(other)
    return [Fault(f"The piece for {_devices(meant)} is {other[0].dtype}; {rest}.", meant)]


def _faults_of_values(assembly: Assembly, assembled: Assembled) -> list[Fault]:
    """Return mistakes about pieces whose numbers belong on another device."""
    wrong = {} if assembled.joined is None else wrong_elements(assembly, assembled.joined)
    if assembled.joined is None or not wrong:
        return []
    placed = sharding.place_array(assembled.joined.array, assembly.mesh())
    assert placed is not None  # the array is on every device
    sentences = []
    for held, start, stop in zip(assembled.joined.contents, placed.starts, placed.stops, strict=True):
        if held.device not in wrong:
            continue
        index = ranges_text(list(zip(start, stop, strict=True)))
        right = belonging(assembly, start, stop)
        sentences.append(
            f"device {held.device} holds {held.values[0]} … {held.values[-1]}, but {index} of the "
            f"array is {right.flat[0]} … {right.flat[-1]}"
        )
    shown = sentences[:2] + ([f"and so on for {len(sentences) - 2} more"] if sentences[2:] else [])
    text = "; ".join(shown) + "."
    values = {contents.device: contents.values for contents in assembled.joined.contents}
    copies = sharding.devices_by_block(placed, assembly.mesh())
    differing = (devices for devices in copies if len({values[device] for device in devices}) > 1)
    if devices := next(differing, None):
        text += (
            f" Devices {devices_text(devices)} should hold the same and do not, which JAX does not "
            "check: reading the whole array shows only the first copy."
        )
    else:
        text += " JAX uses the device of a piece, and does not check its contents."
    return [Fault(text[0].upper() + text[1:], tuple(wrong))]


def _meant(pieces: Iterable[Piece]) -> tuple[int, ...]:
    return tuple(piece.meant_for for piece in pieces if piece.meant_for is not None)


def _devices(devices: Sequence[int]) -> str:
    return f"device{'s' * (len(devices) != 1)} {devices_text(devices)}"


def _has(devices: Sequence[int]) -> str:
    return "has" if len(devices) == 1 else "have"


def values_of(piece: Piece) -> np.ndarray | None:
    """Return the numbers of the piece in its shape. None if JAX was given nothing."""
    return None if piece.shape is None else np.array(piece.values, np.int64).reshape(piece.shape)


def nbytes(piece: Piece) -> int:
    """Return the bytes of a piece."""
    return 0 if piece.shape is None else math.prod(piece.shape) * np.dtype(piece.dtype).itemsize


def snapshot(assembly: Assembly, assembled: Assembled) -> Snapshot:
    """Return the arrays that JAX made. The key `assembly` has the request, the pieces and all numbers."""
    error = None
    if assembled.joined is None or wrong_elements(assembly, assembled.joined):
        sentences = (fault.sentence for fault in faults(assembly, assembled))
        code = WRONG_NUMBERS if assembled.refusal is None else REFUSED
        error = code, " ".join([verdict(assembly, assembled), *sentences])
    result = result_snapshot(
        assembly.mesh(),
        [stage.array for stage in (assembled.joined, assembled.resharded) if stage is not None],
        error,
        assembled.versions,
    )
    return replace(result, assembly={"asked": assembly.to_json(), "made": typed_json.encode(assembled)})
