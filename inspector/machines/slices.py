"""TPU slices: what they are called, which shapes there are, and what a slice of a shape consists of.

A slice is named after its TensorCores: `v5p-128` has 64 chips of two, `v6e-16` has 16 chips of one. Sources:

* Google: https://cloud.google.com/tpu/docs/v5p (v3, v4, v5e, v6e, tpu7x) and .../tpu/docs/types-topologies:
  shapes, hosts (there: VMs) and names.
* MaxText: its table of names, https://github.com/AI-Hypercomputer/maxtext, accelerator_to_spec_map.py: names
  and shapes of whole cubes, and where slices wrap around.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from dataclasses import dataclass

from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.machines.hardware import CHIPS, Chip, Torus

Shape = tuple[int, ...]

# Shapes of two axes, which are given out as they stand here (Google).
_FLAT: dict[str, tuple[Shape, ...]] = {
    "v3": ((2, 2), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16), (16, 32), (32, 32)),
    "v5e": ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)),
    "v6e": ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)),
}
# Shapes of three axes that are less than a cube. Larger slices are made of whole cubes of 4×4×4, which
# optical switches join to any box of at most a pod.
_LESS_THAN_A_CUBE: dict[str, tuple[Shape, ...]] = {
    "v4": ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4)),
    "v5p": ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4)),
    "tpu7x": ((1, 1, 1), (2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4)),
}
_CUBE_EDGE = 4

GENERATIONS = tuple(name for name in CHIPS if name in _FLAT or name in _LESS_THAN_A_CUBE)

# What is written before the number of TensorCores in a slice's name, where it is not the generation.
_PREFIXES = {"v5e": "v5litepod"}

# Google: v5p pods have 8,960 chips, and "the largest job that can be scheduled" has 6,144.
_LARGEST_JOB = {"v5p": 6144}

_SHAPE = re.compile(r"[0-9]{1,4}(?:x[0-9]{1,4}){1,3}")
_NAME = re.compile(r"([a-z][a-z0-9]*)-([0-9]{1,6})")


@dataclass(frozen=True)
class Slice:
    """A slice of a generation's pod: `shape` is its chips along the axes x, y and, if there are three, z."""

    generation: str
    shape: Shape

    @property
    def chip(self) -> Chip:
        return CHIPS[self.generation]

    @property
    def topology(self) -> str:
        """The shape as it is written, `4x4x8`."""
        return shape_text(self.shape)

    @property
    def name(self) -> str:
        """What it is called after its TensorCores, `v5p-256`; other shapes may be called the same."""
        return f"{_PREFIXES.get(self.generation, self.generation)}-{self.cores}"

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def cores(self) -> int:
        """TensorCores."""
        return self.chips * self.chip.cores

    @property
    def devices(self) -> int:
        """What JAX shows of it. Two cores that run as one ("megacore", v4 and v5p) are one device."""
        return self.chips * self.chip.devices

    @property
    def host_shape(self) -> tuple[int, int, int]:
        """Chips of one host along x, y and z. A host is a virtual machine, and one process of JAX."""
        if self.chips == 1:
            return (1, 1, 1)
        if self.shape == (2, 4):  # v5litepod-8 and v6e-8 are one machine (Google)
            return (2, 4, 1)
        return (2, 2, 1)

    @property
    def hosts(self) -> int:
        return self.chips // math.prod(self.host_shape)

    @property
    def wraps(self) -> tuple[bool, ...]:
        """For each axis whether its ends are linked."""
        return tuple(self._torus.wraps_around(length, self.chips) for length in self.shape)

    @property
    def links(self) -> int:
        """Links between neighbouring chips, those that wrap around included."""
        return sum(
            self.chips // length * (length - 1 + wraps)
            for length, wraps in zip(self.shape, self.wraps, strict=True)
        )

    @property
    def remark(self) -> str | None:
        """What else there is to know of it, in a sentence."""
        most = _LARGEST_JOB.get(self.generation)
        if most is not None and self.chips > most:
            return (
                f"Google schedules jobs of at most {most:,} {self.chip.title} chips in one slice; "
                f"this is {'the whole pod' if self.chips == self.chip.pod_chips else 'larger'}."
            )
        return None

    @property
    def sentence(self) -> str:
        """What it consists of: `v5p-128: 64 chips (4×4×4), 128 TensorCores, …`."""
        around = [
            axis for axis, wraps in zip("xyz", self.wraps, strict=False) if wraps and self.chips > 1
        ]
        wrapping = f"wraps around along {' and '.join(around)}" if around else "no wrap-around"
        if around and len(around) == len(self.shape):
            wrapping = "wraps around along every axis"
        return (
            f"{self.name}: {counted(self.chips, 'chip')} ({'×'.join(map(str, self.shape))}), "
            f"{counted(self.cores, 'TensorCore')}, {counted(self.devices, 'JAX device')}, "
            f"{counted(self.hosts, 'host')}, {counted(self.links, 'link')}, {wrapping}"
        )

    @property
    def _torus(self) -> Torus:
        network = self.chip.network
        assert isinstance(network, Torus)  # every generation here is one of TPUs
        return network


@functools.cache
def slices(generation: str) -> tuple[Slice, ...]:
    """Every shape of slice there is of a generation: fewest chips first, among equals the most compact.

    Raises:
      InvalidInput: there is no such generation.
    """
    if generation not in GENERATIONS:
        raise InvalidInput(
            f"TPU generation is {shown(generation)}, but must be one of {', '.join(GENERATIONS)}"
        )
    shapes = [*_FLAT.get(generation, ()), *_LESS_THAN_A_CUBE.get(generation, ())]
    if generation in _LESS_THAN_A_CUBE:
        cubes = (CHIPS[generation].pod_chips or 0) // _CUBE_EDGE**3
        shapes += [tuple(_CUBE_EDGE * edge for edge in edges) for edges in _boxes(cubes)]
    found = [Slice(generation, shape) for shape in shapes]
    return tuple(sorted(found, key=lambda one: (one.chips, sum(one.shape), one.shape)))


@functools.cache
def named_slices(generation: str) -> tuple[Slice, ...]:
    """One slice for each name of a generation, the most compact of its shapes, fewest chips first."""
    by_name: dict[str, Slice] = {}
    for one in slices(generation):
        by_name.setdefault(one.name, one)
    return tuple(by_name.values())


def slice_of(generation: str, topology: str) -> Slice:
    """The slice of this shape, `4x4x8`.

    Raises:
      InvalidInput: there is no such generation or no such slice of it; the sentence says which there are.
    """
    every = slices(generation)
    text = topology.strip().lower().replace("×", "x")
    shape = tuple(map(int, text.split("x"))) if _SHAPE.fullmatch(text) else ()
    for one in every:
        if one.shape == shape:
            return one
    raise InvalidInput(
        f"the topology of a {generation} slice is {shown(topology)}, but must be {_allowed(generation)}"
        + _hint(shape, every)
    )


def slice_named(name: str) -> Slice:
    """The slice that is called so, `v5p-128`, `v5litepod-16` (or `v5e-16`); of several the most compact.

    Raises:
      InvalidInput: there is none; the sentence names the nearest.
    """
    found = _NAME.fullmatch(name.strip().lower())
    generation = {prefix: own for own, prefix in _PREFIXES.items()}.get(
        found[1] if found else "", found[1] if found else ""
    )
    if found is None or generation not in GENERATIONS:
        raise InvalidInput(
            f"slice is {shown(name)}, but must be the name of one, such as v5p-128 or v5litepod-16, "
            f"of generation {', '.join(GENERATIONS)}"
        )
    every, cores = named_slices(generation), int(found[2])
    for one in every:
        if one.cores == cores:
            return one
    nearest = min(every, key=lambda one: abs(one.cores - cores))
    raise InvalidInput(
        f"slice is {shown(name)}, but no {generation} slice has {counted(cores, 'TensorCore')} "
        f"(nearest: {nearest.name}, {nearest.topology})"
    )


def shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _boxes(cubes: int) -> list[Shape]:
    """Every (a, b, c) in ascending order whose product is at most `cubes`."""
    return [
        (a, b, c)
        for a, b in itertools.combinations_with_replacement(range(1, cubes + 1), 2)
        if a * b * b <= cubes
        for c in range(b, cubes // (a * b) + 1)
    ]


def _allowed(generation: str) -> str:
    if generation in _FLAT:
        return f"one of {', '.join(map(shape_text, _FLAT[generation]))}"
    small = ", ".join(map(shape_text, _LESS_THAN_A_CUBE[generation]))
    most = CHIPS[generation].pod_chips
    return (
        f"{small}, or three multiples of {_CUBE_EDGE} in ascending order such as 4x4x8, "
        f"at most {most:,} chips"
    )


def _hint(shape: Shape, every: tuple[Slice, ...]) -> str:
    """The same lengths in the right order, or else the slice with the nearest number of chips."""
    if not shape or 0 in shape:
        return ""
    for one in every:
        if sorted(one.shape) == sorted(shape):
            return f" (the same chips are written {one.topology})"
    chips = math.prod(shape)
    nearest = min(every, key=lambda one: abs(one.chips - chips))
    return f" (nearest: {nearest.topology})"
