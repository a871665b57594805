"""TPU slices: their names and shapes, and the chips, hosts and links of each.

The name contains the number of TensorCores: `v5p-128` has 64 chips with two each, `v6e-16` has 16 chips with
one each. Shapes, hosts and names are those of https://cloud.google.com/tpu/docs/v5p, and of the pages v3, v4,
v5e, v6e and tpu7x next to it. Names and wrap-around links agree with MaxText's accelerator_to_spec_map.py
(https://github.com/AI-Hypercomputer/maxtext).
"""

import functools
import itertools
import math
import re
from dataclasses import dataclass

from inspector.machines.hardware import CHIPS, CUBE_EDGE, Chip, Shape, Torus
from inspector.text.errors import InvalidInput, require_one_of, shown
from inspector.text.formatting import counted

GENERATIONS = tuple(name for name, chip in CHIPS.items() if isinstance(chip.network, Torus))

_SHAPE = re.compile(r"[0-9]{1,4}(?:x[0-9]{1,4}){1,3}")
_NAME = re.compile(r"([a-z][a-z0-9]*)-([0-9]{1,6})")


@dataclass(frozen=True)
class Slice:
    """A slice of a TPU generation. `shape` is the number of chips along x, y and, on some, z."""

    generation: str
    shape: Shape

    @property
    def chip(self) -> Chip:
        return CHIPS[self.generation]

    @property
    def topology(self) -> str:
        """The shape as text, `4x4x8`."""
        return shape_text(self.shape)

    @property
    def name(self) -> str:
        """The name, `v5p-256`. Slices of other shapes can have the same name."""
        return f"{self.chip.slice_prefix}-{self.cores}"

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def cores(self) -> int:
        """TensorCores."""
        return self.chips * self.chip.cores

    @property
    def devices(self) -> int:
        """JAX devices. The two cores of a v4 or v5p chip are one device ("megacore")."""
        return self.chips * self.chip.devices

    @property
    def host_shape(self) -> tuple[int, int, int]:
        """Chips of one host along x, y and z. A host is a virtual machine that runs one JAX process."""
        if self.chips == 1:
            return (1, 1, 1)
        if self.shape == (2, 4):  # v5litepod-8 and v6e-8 are one host (Google)
            return (2, 4, 1)
        return (2, 2, 1)

    @property
    def hosts(self) -> int:
        return self.chips // math.prod(self.host_shape)

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Whether the ends of each axis are linked."""
        torus = _torus_of(self.generation)
        return tuple(torus.wraps_around(length, self.chips) for length in self.shape)

    @property
    def links(self) -> int:
        """Links between neighboring chips, including wrap-around links."""
        return sum(
            self.chips // length * (length - 1 + wraps)
            for length, wraps in zip(self.shape, self.wraps, strict=True)
        )

    @property
    def sentence(self) -> str:
        """The parts of the slice: `v5p-128: 64 chips (4×4×4), 128 TensorCores, …`."""
        around = [axis for axis, wraps in zip("xyz", self.wraps, strict=False) if wraps]
        wrapping = "no wrap-around"
        if self.chips > 1 and around:
            every = len(around) == len(self.shape)
            wrapping = f"wraps around along {'every axis' if every else ' and '.join(around)}"
        return (
            f"{self.name}: {counted(self.chips, 'chip')} ({'×'.join(map(str, self.shape))}), "
            f"{counted(self.cores, 'TensorCore')}, {counted(self.devices, 'JAX device')}, "
            f"{counted(self.hosts, 'host')}, {counted(self.links, 'link')}, {wrapping}"
        )


@functools.cache
def slices(generation: str) -> tuple[Slice, ...]:
    """Return all slices of a generation, fewest chips first and then the most compact."""
    torus = _torus_of(generation)
    shapes = list(torus.slices)
    if torus.wraps == "cube":
        cubes = math.prod(torus.pod) // CUBE_EDGE**3
        shapes += [tuple(CUBE_EDGE * edge for edge in edges) for edges in _boxes(cubes)]
    slices = [Slice(generation, shape) for shape in shapes]
    return tuple(sorted(slices, key=lambda part: (part.chips, sum(part.shape), part.shape)))


@functools.cache
def named_slices(generation: str) -> tuple[Slice, ...]:
    """Return one slice per name, the most compact one, fewest chips first."""
    by_name: dict[str, Slice] = {}
    for known_slice in slices(generation):
        by_name.setdefault(known_slice.name, known_slice)
    return tuple(by_name.values())


def slice_of(generation: str, topology: str) -> Slice:
    """Return the slice of a shape such as `4x4x8`; raise InvalidInput if the generation has none."""
    every = slices(generation)
    text = topology.strip().lower().replace("×", "x")
    shape = tuple(map(int, text.split("x"))) if _SHAPE.fullmatch(text) else ()
    for known_slice in every:
        if known_slice.shape == shape:
            return known_slice
    raise InvalidInput(
        f"the topology of a {generation} slice is {shown(topology)}, but must be {_allowed(generation)}"
        + _hint(shape, every)
    )


def slice_named(name: str) -> Slice:
    """Return the most compact slice named as `v5p-128` or `v5litepod-16` (or `v5e-16`).

    Raise InvalidInput if there is none of this name.
    """
    match = _NAME.fullmatch(name.strip().lower())
    prefix = match[1] if match else ""
    generation = next((g for g in GENERATIONS if prefix in (g, CHIPS[g].slice_prefix)), None)
    if match is None or generation is None:
        raise InvalidInput(
            f"slice is {shown(name)}, but must be a name such as v5p-128 or v5litepod-16, "
            f"of generation {', '.join(GENERATIONS)}"
        )
    every, cores = named_slices(generation), int(match[2])
    for known_slice in every:
        if known_slice.cores == cores:
            return known_slice
    nearest = min(every, key=lambda known_slice: abs(known_slice.cores - cores))
    raise InvalidInput(
        f"slice is {shown(name)}, but no {generation} slice has {counted(cores, 'TensorCore')} "
        f"(nearest: {nearest.name}, {nearest.topology})"
    )


def shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _torus_of(generation: str) -> Torus:
    require_one_of("TPU generation", generation, GENERATIONS)
    network = CHIPS[generation].network
    assert isinstance(network, Torus)
    return network


def _boxes(cubes: int) -> list[Shape]:
    """Return each ascending (a, b, c) with a product of at most `cubes`."""
    return [
        (a, b, c)
        for a, b in itertools.combinations_with_replacement(range(1, cubes + 1), 2)
        if a * b * b <= cubes
        for c in range(b, cubes // (a * b) + 1)
    ]


def _allowed(generation: str) -> str:
    torus = _torus_of(generation)
    shapes = ", ".join(map(shape_text, torus.slices))
    if torus.wraps == "pod edge":
        return f"one of {shapes}"
    return (
        f"{shapes}, or three multiples of {CUBE_EDGE} in ascending order such as 4x4x8, "
        f"at most {math.prod(torus.pod):,} chips"
    )


def _hint(shape: Shape, every: tuple[Slice, ...]) -> str:
    """Return the same edges in ascending order, or else the slice with the nearest number of chips."""
    if not shape or 0 in shape:
        return ""
    for known_slice in every:
        if sorted(known_slice.shape) == sorted(shape):
            return f" (the same chips are written {known_slice.topology})"
    chips = math.prod(shape)
    nearest = min(every, key=lambda known_slice: abs(known_slice.chips - chips))
    return f" (nearest: {nearest.topology})"
