"""Shapes in HLO text, `bf16[4,8]{1,0:T(8,128)}` or tuples of them, and their elements and bytes."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from inspector.hlo.text import SQUARE
from inspector.records.statistics import sum_known

# Larger counts, which only invalid text has, are unknown. A float still holds sums of such counts.
MAX_COUNT = 10**300

# Bits of the types whose names do not contain their width.
_BITS = {"pred": 8, "bf16": 16, "token": 0, "opaque": 0}
# Floating-point types below 32 bits begin with their width: f8e4m3fn, f4e2m1fn.
_WIDTH = re.compile(r"[suf](\d{1,4})(?:e\d+m\d+\w*)?$|c(\d{1,4})$")
# `b(` opens a buffer.
_TOKEN = re.compile(rf"(b?\(|\))|([a-z]\w*+)({SQUARE})(\{{[^{{}}]*+\}})?+|,|/\*[^*]*+\*/|\s++")
# Part of a layout: the element size in bits, if it is not that of the type.
_ELEMENT_SIZE = re.compile(r"E\((\d{1,4})\)")
# Part of a layout: the memory space, if it is not that of the device.
_MEMORY_SPACE = re.compile(r"S\((\d{1,4})\)")
# Parts of a layout: the dimensions from minor to major, and the tile of the minor ones.
_ORDER = re.compile(r"\{([\d,]*+)")
_TILE = re.compile(r"T\(([\d,]{1,40}+)\)")
_MLIR_INTEGER = re.compile(r"(u)?s?i(\d{1,3})")
_MLIR_COMPLEX = re.compile(r"complex<f(\d{2})>")
_JAX_NAMES = {"pred": "bool", "bf16": "bfloat16"}
_JAX_WIDTH = re.compile(r"([suf]|c)(\d{1,3})")
_JAX_KINDS = {"s": "int", "u": "uint", "f": "float", "c": "complex"}
_JAX_FLOAT8 = re.compile(r"f(\d)(e\d+m\d+\w*)")
_MAX_DIGITS = 19  # of a dimension, which is an int64
_MAX_RANK = 100


@dataclass(frozen=True)
class Shape:
    """One array, or a tuple of shapes in `parts`. An unbounded dynamic dimension is None.

    memory_space: XLA's number of the memory that holds the array, 0 for that of the device, 5 for the host's.
    minor_to_major: dimensions of the layout, the fastest one first; empty if the text has no layout.
    tile: elements of a tile of the minor dimensions, major one first; empty if the layout has no tiles.
    """

    dtype: str
    dimensions: tuple[int | None, ...] = ()
    element_bits: int | None = None
    parts: tuple[Shape, ...] | None = None
    memory_space: int = field(default=0, compare=False)
    minor_to_major: tuple[int, ...] = field(default=(), compare=False)
    tile: tuple[int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        """The shape as HLO writes it, without the layout: bf16[8,1024]."""
        if self.parts is not None:
            return f"({', '.join(map(str, self.parts))})"
        sizes = ("?" if size is None else str(size) for size in self.dimensions)
        return f"{self.dtype}[{','.join(sizes)}]"

    @functools.cached_property
    def elements(self) -> int | None:
        """Elements of an array, with the bound of a dynamic dimension; None if unknown or a tuple."""
        if self.parts is not None or len(self.dimensions) > _MAX_RANK:
            return None
        count = 1
        for dimension in self.dimensions:
            if dimension is None:
                return None
            count *= dimension
        return count if count <= MAX_COUNT else None

    @functools.cached_property
    def bytes(self) -> int | None:
        """Bytes of the array or of all arrays of the tuple; None if unknown. Sub-byte types are packed."""
        if self.parts is not None:
            return total_bytes(self.parts)
        if self.element_bits is None or self.elements is None:
            return None
        return -(-self.elements * self.element_bits // 8)

    @functools.cached_property
    def padded_bytes(self) -> int | None:
        """Bytes of an array in memory, where whole tiles are stored; None if unknown or a tuple."""
        if self.parts is not None or not self.tile or len(self.tile) > len(self.dimensions) > 0:
            return None if self.parts is not None else self.bytes
        if sorted(self.minor_to_major) != list(range(len(self.dimensions))):
            return self.bytes
        if self.element_bits is None or self.elements is None:
            return None
        sizes = [self.dimensions[number] or 0 for number in reversed(self.minor_to_major)]
        if not sizes:
            return -(-math.prod(self.tile) * self.element_bits // 8)
        for at, tile in enumerate(reversed(self.tile), 1):
            sizes[-at] = -(-sizes[-at] // max(tile, 1)) * tile
        return -(-math.prod(sizes) * self.element_bits // 8)

    @functools.cached_property
    def outside_bytes(self) -> int:
        """Bytes of the arrays that are not in the memory of the device, such as in VMEM of a TPU."""
        if self.parts is not None:
            return sum(part.outside_bytes for part in self.parts)
        return (self.bytes or 0) if self.memory_space else 0

    @property
    def depth(self) -> int:
        """Nesting depth of tuples, 0 for an array."""
        return 0 if self.parts is None else 1 + max((part.depth for part in self.parts), default=0)


def total_bytes(shapes: Iterable[Shape | None]) -> int | None:
    """Return the bytes of all shapes; None if one is unknown."""
    return sum_known(None if shape is None else shape.bytes for shape in shapes)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Shape | None:
    """Return the shape in this text; None if it is not a shape."""
    open_parts: list[list[Shape]] = [[]]
    buffers: list[bool] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return None
        position = token.end()
        bracket, dtype, dimensions, layout = token.groups()
        if bracket and bracket != ")":
            open_parts.append([])
            buffers.append(bracket == "b(")
        elif bracket == ")":
            if len(open_parts) == 1:
                return None
            parts = open_parts.pop()
            if buffers.pop():  # a buffer is the array in it
                open_parts[-1] += parts
            else:
                open_parts[-1].append(Shape("tuple", parts=tuple(parts)))
        elif dtype:
            array = _array(dtype, dimensions, layout or "")
            if array is None:
                return None
            open_parts[-1].append(array)
    return open_parts[0][0] if len(open_parts) == 1 and len(open_parts[0]) == 1 else None


@functools.lru_cache(maxsize=4096)
def bytes_of(text: str | None) -> int | None:
    """Return the bytes of the shape in this text; None if unknown."""
    shape = parse(text) if text else None
    return None if shape is None else shape.bytes


@functools.lru_cache(maxsize=4096)
def elements_of(text: str | None) -> int | None:
    """Return the elements of the array shape in this text; None if unknown."""
    shape = parse(text) if text else None
    return None if shape is None else shape.elements


def _array(dtype: str, dimensions: str, layout: str) -> Shape | None:
    sizes: list[int | None] = []
    for size in filter(None, (part.strip() for part in dimensions[1:-1].split(","))):
        bound = size.removeprefix("<=").strip()
        if bound.isdecimal() and bound.isascii() and len(bound) <= _MAX_DIGITS:
            sizes.append(int(bound))
        elif bound == "?":
            sizes.append(None)
        else:
            return None
    stated = _ELEMENT_SIZE.search(layout)
    space = _MEMORY_SPACE.search(layout)
    order, tile = _ORDER.match(layout), _TILE.search(layout)
    return Shape(
        dtype,
        tuple(sizes),
        int(stated[1]) if stated else element_bits(dtype),
        memory_space=int(space[1]) if space else 0,
        minor_to_major=_numbers(order[1]) if order else (),
        tile=_numbers(tile[1]) if tile else (),
    )


def _numbers(written: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in written.split(",") if 0 < len(digits) < 10)


def of_mlir(written: str) -> str:
    """Return the name in HLO of an element type in MLIR: i32 is s32, i1 is pred, complex<f32> is c64."""
    plain = written.replace("f8E", "f8e").replace("f4E", "f4e")
    if plain == "i1":
        return "pred"
    if match := _MLIR_COMPLEX.fullmatch(plain):
        return f"c{2 * int(match[1])}"
    if match := _MLIR_INTEGER.fullmatch(plain):
        return f"{'u' if match[1] else 's'}{match[2]}"
    return plain.lower()


def element_bits(dtype: str) -> int | None:
    """Return the bits of one element: 4 for s4, 8 for pred, 64 for c64; None for an unknown type."""
    width = _WIDTH.match(dtype)
    return int(width[1] or width[2]) if width else _BITS.get(dtype)


def jax_dtype(written: str) -> str:
    """Return JAX's name of an element type in HLO: f32 is float32, f8e4m3fn is float8_e4m3fn."""
    if written in _JAX_NAMES:
        return _JAX_NAMES[written]
    if match := _JAX_FLOAT8.fullmatch(written):
        return f"float{match[1]}_{match[2]}"
    match = _JAX_WIDTH.fullmatch(written)
    return f"{_JAX_KINDS[match[1]]}{match[2]}" if match else written
