"""What a program needs on one device, which arrays that is, what devices hold twice, and whether it fits."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from inspector.compiled import out_of_memory
from inspector.core import sharding, totals
from inspector.core.array_groups import ARRAY_GROUPS
from inspector.core.formatting import bytes_text
from inspector.core.snapshot import (
    Array,
    Mesh,
    Program,
    ProgramArray,
    Snapshot,
    Spec,
)
from inspector.machines import targets
from inspector.machines.hardware import Chip

# The headings of the groups of arrays, in the order in which they are shown.
GROUPS = {group: style.heading for group, style in ARRAY_GROUPS.items()}
UNEXPLAINED = "not explained by arrays"
STATE_AND_BATCH = (*totals.STATE_GROUPS, "batch")


@dataclass(frozen=True)
class Part:
    """Bytes on one device of what goes into a program or comes out of it, by group of arrays.

    `group` is None for the rest that no array of the Snapshot explains: a random key, a loss, the table of
    a tuple, alignment. It is what is left of the compiler's figure, exactly, and then `arrays` is 0.
    """

    group: str | None
    arrays: int
    bytes: int | None

    @property
    def name(self) -> str:
        return UNEXPLAINED if self.group is None else GROUPS.get(self.group, self.group)


@dataclass(frozen=True)
class Breakdown:
    """Bytes that one program has on one device, as the compiler counts them.

    arguments, outputs: by group, the unexplained rest last; their sums are the compiler's own figures.
    aliased: outputs that are written over arguments, and are counted among both.
    temporaries: what it needs in between, in one block.
    code: the program itself; `code_on_device` says whether that takes memory of the device.
    peak: the most that is alive at one time, as the compiler says.
    donatable: outputs that have an argument of the same array and sharding, which they could be written over.
    """

    program: str
    arguments: tuple[Part, ...]
    outputs: tuple[Part, ...]
    aliased: int | None
    temporaries: int | None
    code: int | None
    peak: int | None
    code_on_device: bool
    donatable: int | None

    @property
    def total(self) -> int | None:
        """Bytes reserved while it runs: arguments + outputs + temporaries − aliased.

        Where code lives in the device's memory, as on TPUs and GPUs, plus code.
        """
        held = [
            *(part.bytes for part in (*self.arguments, *self.outputs)),
            self.temporaries,
            *([self.code] if self.code_on_device else []),
        ]
        if self.aliased is None or None in held:
            return None
        return sum(number for number in held if number is not None) - self.aliased

    @property
    def not_donated(self) -> int | None:
        """Bytes that donating the train state would still save."""
        if self.donatable is None or self.aliased is None:
            return None
        return max(self.donatable - self.aliased, 0)

    @property
    def largest(self) -> tuple[str, int] | None:
        """The largest part, in words, and its bytes; outputs count without what they share."""
        outputs = summed(part.bytes for part in self.outputs)
        own = None if outputs is None or self.aliased is None else outputs - self.aliased
        named = [
            ("arguments that no array explains" if part.group is None else part.name, part.bytes)
            for part in self.arguments
        ]
        named += [("outputs", own), ("temporaries", self.temporaries)]
        known = [(name, number) for name, number in named if number is not None]
        return max(known, key=lambda item: item[1], default=None)


@dataclass(frozen=True)
class Duplication:
    """Bytes of some arrays once, and on all devices together; None where an array's are not known."""

    name: str
    group: str
    arrays: int
    once: int | None
    everywhere: int | None

    @property
    def duplicated(self) -> int | None:
        """Bytes that would not be there if each were on one device only."""
        if self.once is None or self.everywhere is None:
            return None
        return self.everywhere - self.once

    @property
    def factor(self) -> float | None:
        """Bytes on all devices over bytes once."""
        if not self.once or self.everywhere is None:
            return None
        return self.everywhere / self.once


@dataclass(frozen=True)
class Fit:
    """Whether a layout fits into a chip's memory, with the sentence that says so.

    `fits` is None where it cannot be known. `needed` is what the neediest program has on one device, or,
    where nothing was compiled (`at_least`), the train state and the batch alone.
    """

    fits: bool | None
    needed: int | None
    at_least: bool
    capacity: int | None
    program: str | None
    sentence: str


def breakdown(found: Snapshot, program: Program) -> Breakdown | None:
    """The memory of one program by what it is for; None where the compiler told nothing of it."""
    memory = program.memory
    if memory is None:
        return None
    return Breakdown(
        program=program.name,
        arguments=_parts(found, program, "input", memory.arguments),
        outputs=_parts(found, program, "output", memory.outputs),
        aliased=memory.aliased,
        temporaries=memory.temporaries,
        code=memory.code,
        peak=memory.peak,
        code_on_device=found.source.kind in ("tpu", "gpu"),
        donatable=_donatable(found, program),
    )


def breakdowns(found: Snapshot) -> tuple[Breakdown, ...]:
    """Those of all programs that the compiler told something of."""
    each = (breakdown(found, program) for program in found.programs)
    return tuple(one for one in each if one is not None)


def duplication_by_group(found: Snapshot) -> tuple[Duplication, ...]:
    """What is held on several devices, group by group."""
    together: dict[str, list[Array]] = defaultdict(list)
    for array in found.arrays:
        together[array.group].append(array)
    return tuple(
        Duplication(
            name,
            group,
            len(together[group]),
            summed(array.bytes for array in together[group]),
            summed(bytes_everywhere(array, found.mesh) for array in together[group]),
        )
        for group, name in GROUPS.items()
        if group in together
    )


def duplication_by_array(found: Snapshot) -> tuple[Duplication, ...]:
    """The arrays of which several devices hold the same, those first that waste the most bytes."""
    each = (
        Duplication(array.path, array.group, 1, array.bytes, bytes_everywhere(array, found.mesh))
        for array in found.arrays
    )
    doubled = [one for one in each if one.duplicated]
    return tuple(sorted(doubled, key=lambda one: -(one.duplicated or 0)))


def bytes_everywhere(array: Array, mesh: Mesh | None) -> int | None:
    """Bytes that all devices together hold of an array; None where its placement is not known."""
    if array.shards is not None and array.bytes is not None and array.shape is not None:
        elements = math.prod(array.shape)
        held = sum(math.prod(stop - start for start, stop in shard.index) for shard in array.shards)
        return held * array.bytes // elements if elements else 0
    if array.bytes_per_device is None or mesh is None:
        return None
    return array.bytes_per_device * mesh.size


def capacity_of(chip: Chip) -> int:
    """Bytes that programs may use on one device of a chip: what XLA leaves them where that is known, else
    its part of the chip's memory as sold."""
    return chip.allocatable_bytes or chip.hbm_bytes_per_device


def fit(found: Snapshot, chip: Chip) -> Fit:
    """Whether the neediest program fits into one device of a chip; a plan says what it needs at least.

    Where the chip's own compiler refused a program, or took all of them, that is the answer: it knows what
    the sum of the parts does not, such as which of them share their place.
    """
    capacity = capacity_of(chip)
    target = targets.compiled_for(found)
    of_this_chip = target is not None and target.chip == chip
    refused = out_of_memory.refused(found)
    if of_this_chip and refused:
        worst = max(refused, key=lambda one: one.bytes or 0)
        needed = None if worst.bytes is None else capacity + worst.bytes
        return Fit(False, needed, False, capacity, None, f"{worst.message}.")
    needed = [(one, total) for one in breakdowns(found) if (total := one.total) is not None]
    if needed:
        one, total = max(needed, key=lambda item: item[1])
        # Another compiler fuses and pads otherwise, so that its temporaries differ.
        made = ", as compiled for emulated devices," if found.source.kind == "cpu" else ""
        sentence = f"{one.program}{made} needs {_of_chip(total, chip)}: "
        if total > capacity:
            sentence += f"{bytes_text(total - capacity)} too much"
        else:
            sentence += f"it fits, with {bytes_text(capacity - total)} to spare"
        if largest := one.largest:
            sentence += f". The largest part is {largest[0]}, {bytes_text(largest[1])}"
        if of_this_chip and total > capacity:
            sentence = (
                f"It fits: the compiler for {target.text} took every program, although the parts of "
                f"{one.program} sum up to {_of_chip(total, chip)}; some of them share their place"
            )
        return Fit(
            of_this_chip or total <= capacity, total, False, capacity, one.program, f"{sentence}."
        )
    least = totals.totals(found, STATE_AND_BATCH)
    if least.per_device is None or not least.arrays:
        return Fit(
            None,
            None,
            True,
            capacity,
            None,
            f"Whether this fits into the {bytes_text(capacity)} of {_device_of(chip)} is unknown: "
            "the bytes per device of its arrays are not known.",
        )
    sentence = f"Train state and batch alone need at least {_of_chip(least.per_device, chip)}: "
    if least.per_device > capacity:
        sentence += f"{bytes_text(least.per_device - capacity)} too much."
        return Fit(False, least.per_device, True, capacity, None, sentence)
    sentence += (
        "whether outputs and temporaries fit into the rest is unknown until the layout is built."
    )
    return Fit(None, least.per_device, True, capacity, None, sentence)


def summed(numbers: Iterable[int | None]) -> int | None:
    """The sum; None where one of them is unknown."""
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


def _of_chip(needed: int, chip: Chip) -> str:
    return f"{bytes_text(needed)} of the {bytes_text(capacity_of(chip))} of {_device_of(chip)}"


def _device_of(chip: Chip) -> str:
    if chip.devices == 1:
        return f"{_article(chip.title)} {chip.title} chip"
    return f"one of the {chip.devices} devices of {_article(chip.title)} {chip.title} chip"


def _article(title: str) -> str:
    return "an" if title.startswith("NVIDIA") else "a"


def _parts(found: Snapshot, program: Program, role: str, counted: int | None) -> tuple[Part, ...]:
    by_path = {array.path: array for array in found.arrays}
    held: dict[str, list[int]] = defaultdict(list)
    for one in program.shardings:
        array = by_path.get(one.path)
        if one.role != role or not one.used or array is None:
            continue
        number = _bytes_per_device(array, one, found.mesh)
        if number is not None:
            held[array.group].append(number)
    parts = [Part(group, len(held[group]), sum(held[group])) for group in GROUPS if group in held]
    explained = sum(part.bytes or 0 for part in parts)
    rest = None if counted is None else counted - explained
    return (*parts, *([] if rest == 0 else [Part(None, 0, rest)]))


def _bytes_per_device(array: Array, one: ProgramArray, mesh: Mesh | None) -> int | None:
    """What one device holds of an array in a program, which may shard it otherwise than it is kept."""
    if (
        one.compiled is None
        or array.spec is None
        or mesh is None
        or _same(one.compiled, array.spec)
    ):
        return array.bytes_per_device
    if array.bytes is None or array.shape is None or len(one.compiled) != len(array.shape):
        return None
    # A file may say anything of a program's shardings.
    if not {axis for axes in one.compiled for axis in axes or ()}.issubset(mesh.axis_names):
        return None
    if any(sharding.indivisible(array.shape, one.compiled, mesh)):
        return None
    return array.bytes // math.prod(mesh.ways(axes) for axes in one.compiled)


def _donatable(found: Snapshot, program: Program) -> int | None:
    if not program.shardings:
        return None
    by_path = {array.path: array for array in found.arrays}
    taken = {one.path: one for one in program.shardings if one.role == "input" and one.used}
    return summed(
        _bytes_per_device(by_path[one.path], one, found.mesh)
        for one in program.shardings
        if one.role == "output"
        and one.path in by_path
        and (given := taken.get(one.path)) is not None
        and one.compiled is not None
        and given.compiled is not None
        and _same(one.compiled, given.compiled)
    )


def _same(one: Spec, other: Spec) -> bool:
    """Whether two specs of one array say the same; an empty entry splits nothing."""
    return tuple(axes or None for axes in one) == tuple(axes or None for axes in other)
