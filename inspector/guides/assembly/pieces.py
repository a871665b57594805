"""Compute the block that belongs on each device, and check the pieces that JAX was given.

Everything is found by comparing what was handed over, or read back, with what the sharding asks for; the
name of a deliberate mistake is never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inspector.core import sharding
from inspector.core.formatting import counted, devices_text, mesh_axes_text, ranges_text, shape_text
from inspector.core.sharding import Placement
from inspector.core.snapshot import Spec
from inspector.guides.assembly import Assembled, Assembly, Piece, Stage
from inspector.guides.restore import transfer

DTYPE = "int32"  # of every number that is assembled


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


def placement(assembly: Assembly, shape: Sequence[int] | None = None) -> Placement | None:
    """Return the placement of the global array. None if its shape is not divisible by the mesh."""
    shape = assembly.shape if shape is None else shape
    if any(sharding.indivisible(shape, assembly.spec, assembly.mesh())):
        return None
    return sharding.place(shape, assembly.spec, assembly.mesh())


def home_blocks(assembly: Assembly) -> np.ndarray:
    """Return the number of the block of each element, in the shape of the global array."""
    found = placement(assembly)
    numbers = np.zeros(assembly.shape, dtype=np.int64)
    if found is not None:
        for start, stop, block in zip(found.starts, found.stops, found.block, strict=True):
            numbers[window(start, stop)] = block
    return numbers


def blocks_of_values(assembly: Assembly, values: np.ndarray) -> np.ndarray:
    """The block that each of these numbers is loaded in; those of a later batch count as in the first."""
    return home_blocks(assembly).ravel()[values % assembly.elements]


def belonging(assembly: Assembly, start: Sequence[int], stop: Sequence[int]) -> np.ndarray:
    """Return the numbers that belong in these index ranges of the global array."""
    numbers = np.arange(assembly.elements).reshape(assembly.shape)
    return numbers[window(start, stop)]


def window(start: Sequence[int], stop: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(int(low), int(high)) for low, high in zip(start, stop, strict=True))


def wrong_elements(assembly: Assembly, stage: Stage) -> dict[int, np.ndarray]:
    """Return a mask of the wrong numbers for each device that has some, in the shape of its shard."""
    found = {}
    for shard, held in zip(
        sharding.shards(stage.array, assembly.mesh()) or (), stage.contents, strict=True
    ):
        ranges = np.array(shard.index, dtype=np.int64).reshape(-1, 2)
        right = belonging(assembly, ranges[:, 0], ranges[:, 1])
        mask = np.array(held.values).reshape(held.shape) != right
        if mask.any():
            found[held.device] = mask
    return found


def faults(assembly: Assembly, made: Assembled) -> tuple[Fault, ...]:
    """Return the mistakes in the pieces, whether or not JAX detects them."""
    mesh = assembly.mesh()
    for spec in (assembly.spec, assembly.target):
        if spec is None:
            continue
        for uneven in sharding.indivisible(made.shape, spec, mesh):
            return (
                Fault(
                    f"{uneven.text(f'Dimension {uneven.dimension} of {shape_text(made.shape)}')}, "
                    "so the pieces cannot have equal shapes."
                ),
            )
    asked = sharding.place(made.shape, assembly.spec, mesh)
    found: list[Fault] = []
    if assembly.way == "pieces":
        found += _faults_of_places(assembly, made.pieces)
    found += _faults_of_shapes(assembly, made, asked)
    found += _faults_of_dtypes(assembly, made.pieces)
    if not found:
        found += _faults_of_values(assembly, made)
    return tuple(found)


def verdict(assembly: Assembly, made: Assembled) -> str:
    """Return a sentence on what JAX did."""
    if made.refusal is not None:
        doing = {
            "cut": "when it was asked which part belongs to which device",
            "move": "when the pieces were moved",
            "join": "when it was to make the array",
            "reshard": "when it was to reshard the array",
        }[made.refusal.step]
        return f"JAX refused {doing}."
    assert made.joined is not None  # there is an array unless it was refused
    wrong = wrong_elements(assembly, made.joined)
    if not wrong:
        if made.joined.array.dtype != DTYPE:
            return (
                f"JAX made the array without a word, and every number is right, but it is "
                f"{made.joined.array.dtype} now."
            )
        if any(piece.dtype != DTYPE for piece in made.pieces):
            return f"JAX made the array, changed to {DTYPE} without a word; every number is right."
        on = [piece.on for piece in made.pieces if piece.on is not None]
        order = (
            " In the list they stood in another order: JAX goes by the device that a piece is on."
        )
        return "JAX made the array, and every number is where it belongs." + order * (
            on != sorted(on, key=assembly.mesh().devices.index)
        )
    elements = sum(int(mask.sum()) for mask in wrong.values())
    return (
        f"JAX made the array without a word, but {counted(elements, 'number')} on "
        f"{counted(len(wrong), 'device')} ({devices_text(tuple(wrong))}) "
        f"{'is' if elements == 1 else 'are'} not what belongs there."
    )


def arrivals(assembly: Assembly, made: Assembled) -> tuple[Arrival, ...]:
    """Return where the bytes of each shard after the reshard come from, in mesh order.

    What it held before it keeps; the rest is counted as sent by the first device that held it.
    """
    if made.joined is None or made.resharded is None:
        return ()
    mesh = assembly.mesh()
    before = sharding.place_array(made.joined.array, mesh)
    after = sharding.place_array(made.resharded.array, mesh)
    assert before is not None and after is not None  # JAX has placed both on every device
    itemsize = np.dtype(made.resharded.array.dtype).itemsize
    sent = transfer.moving_elements(before, after, mesh, mesh) * itemsize
    return tuple(
        Arrival(
            device,
            int(sent[place, place]),
            tuple(
                (mesh.devices[source], int(size))
                for source, size in enumerate(sent[:, place].tolist())
                if size and source != place
            ),
        )
        for place, device in enumerate(mesh.devices)
    )


def spec_in_words(spec: Spec) -> str:
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
        lacking = "" if not empty else f", and {_devices(empty)} {_has(empty)} none"
        return [Fault(f"{which} lie on device {device}{lacking}.", (*crowded, *empty))]
    if empty:
        return [
            Fault(
                f"{_devices(empty).capitalize()} {_has(empty)} no piece: every device of the mesh must "
                "have exactly one, also a device that holds a copy.",
                empty,
            )
        ]
    return []


def _faults_of_shapes(assembly: Assembly, made: Assembled, asked: Placement) -> list[Fault]:
    found: list[Fault] = []
    needed = tuple((asked.stops[0] - asked.starts[0]).tolist())
    if assembly.way == "device_put":
        return found
    nothing = [piece for piece in made.pieces if piece.shape is None]
    if nothing:
        found.append(
            Fault(
                f"The callback gave nothing for {_devices(_meant(nothing))}, where it must give "
                f"{shape_text(needed)} {DTYPE}.",
                _meant(nothing),
            )
        )
    wrong = [piece for piece in made.pieces if piece.shape not in (needed, None)]
    if wrong:
        has = "is" if len(wrong) == 1 else "are"
        which = f"The piece for {_devices(_meant(wrong))}"
        if len(wrong) > 1:
            which = (
                f"All {len(wrong)} pieces"
                if len(wrong) == len(made.pieces)
                else (f"The pieces for {_devices(_meant(wrong))}")
            )
        cut = spec_in_words(assembly.spec)
        found.append(
            Fault(
                f"{which} {has} {shape_text(wrong[0].shape or ())}, but each must be "
                f"{shape_text(needed)}: that is {shape_text(made.shape)} with {cut}.",
                _meant(wrong),
            )
        )
    return found


def _faults_of_dtypes(assembly: Assembly, pieces: Sequence[Piece]) -> list[Fault]:
    other = [piece for piece in pieces if piece.dtype not in (DTYPE, "None")]
    if not other:
        return []
    if assembly.way == "device_put":
        return [Fault(f"The host array is {other[0].dtype}, not {DTYPE} as JAX has it by default.")]
    is_all = len(other) == len(pieces)
    rest = f"it must be {DTYPE}" if is_all else f"the others are {DTYPE}"
    return [
        Fault(
            f"The piece for {_devices(_meant(other))} is {other[0].dtype}; {rest}.", _meant(other)
        )
    ]


def _faults_of_values(assembly: Assembly, made: Assembled) -> list[Fault]:
    """Return mistakes about pieces whose numbers belong on another device."""
    if made.joined is None:
        return []
    wrong = wrong_elements(assembly, made.joined)
    if not wrong:
        return []
    asked = sharding.place_array(made.joined.array, assembly.mesh())
    assert asked is not None  # JAX has placed it on every device
    sentences = []
    for held in made.joined.contents:
        if held.device not in wrong:
            continue
        place = assembly.mesh().devices.index(held.device)
        index = ranges_text(list(zip(asked.starts[place], asked.stops[place], strict=True)))
        right = belonging(assembly, asked.starts[place], asked.stops[place])
        sentences.append(
            f"device {held.device} holds {held.values[0]} … {held.values[-1]}, but {index} of the "
            f"array is {right.flat[0]} … {right.flat[-1]}"
        )
    shown = sentences[:2] + ([f"and so on for {len(sentences) - 2} more"] if sentences[2:] else [])
    text = "; ".join(shown) + "."
    differing = _differing_copies(assembly, made.joined)
    if differing:
        text += (
            f" Devices {devices_text(differing)} should hold the same and do not, which JAX does not "
            "check: reading the whole array shows only the first copy."
        )
    else:
        text += " JAX goes by the device that a piece is on, and does not know what belongs in it."
    return [Fault(text[0].upper() + text[1:], tuple(wrong))]


def _differing_copies(assembly: Assembly, stage: Stage) -> tuple[int, ...]:
    """Return the devices of the first block whose copies differ."""
    asked = sharding.place_array(stage.array, assembly.mesh())
    if asked is None:
        return ()
    held = {contents.device: contents.values for contents in stage.contents}
    for devices in sharding.devices_by_block(asked, assembly.mesh()):
        if len({held[device] for device in devices}) > 1:
            return devices
    return ()


def _meant(pieces: Iterable[Piece]) -> tuple[int, ...]:
    return tuple(piece.meant_for for piece in pieces if piece.meant_for is not None)


def _devices(devices: Sequence[int]) -> str:
    return f"device{'s' * (len(devices) != 1)} {devices_text(devices)}"


def _has(devices: Sequence[int]) -> str:
    return "has" if len(devices) == 1 else "have"


def values_of(piece: Piece) -> np.ndarray | None:
    """Return the numbers of the piece in its shape. None if JAX was given nothing."""
    if piece.shape is None:
        return None
    return np.array(piece.values, dtype=np.int64).reshape(piece.shape)


def nbytes(piece: Piece) -> int:
    """Return the bytes of a piece."""
    return 0 if piece.shape is None else math.prod(piece.shape) * np.dtype(piece.dtype).itemsize
