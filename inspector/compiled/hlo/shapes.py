"""Shapes as HLO writes them, `bf16[4,8]{1,0:T(8,128)}` or tuples of such, and their bytes."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

from inspector.compiled.hlo.text import SQUARE

# Bits of an element, of the types whose names do not end in their width.
_BITS = {"pred": 8, "bf16": 16, "token": 0, "opaque": 0}
# Floating-point types of less than 32 bits state their width first: f8e4m3fn, f4e2m1fn.
_WIDTH = re.compile(r"[suf](\d+)(?:e\d+m\d+\w*)?$|c(\d+)$")
# `b(` opens a buffer, which is the array in it and memory of its own.
_TOKEN = re.compile(rf"(b?\(|\))|([a-z]\w*+)({SQUARE})(\{{[^{{}}]*+\}})?+|,|/\*[^*]*+\*/|\s++")
# The layout's word for the bits that an element takes where they are not those of its type.
_ELEMENT_SIZE = re.compile(r"E\((\d{1,4})\)")
_MOST_DIGITS = 19  # of a dimension, which is an int64


@dataclass(frozen=True)
class Shape:
    """One array, or a tuple of shapes. A dimension is None where the program itself does not know it."""

    dtype: str
    dimensions: tuple[int | None, ...] = ()
    element_bits: int | None = None
    parts: tuple[Shape, ...] | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes of the array, or of all arrays of the tuple; None where an array has unknown size.

        Elements of less than a byte are packed, and a bounded dynamic dimension counts as its bound.
        """
        if self.parts is not None:
            return total_bytes(self.parts)
        if self.element_bits is None or None in self.dimensions:
            return None
        return -(-math.prod(d for d in self.dimensions if d is not None) * self.element_bits // 8)

    @property
    def depth(self) -> int:
        """How many tuples are around its innermost arrays."""
        return 0 if self.parts is None else 1 + max((part.depth for part in self.parts), default=0)


def total_bytes(shapes: tuple[Shape | None, ...]) -> int | None:
    """Bytes of all of them together; None where one is unknown."""
    each = [None if shape is None else shape.bytes for shape in shapes]
    return None if None in each else sum(size for size in each if size is not None)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Shape | None:
    """The shape that a text says; None where it says none."""
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
            if buffers.pop():
                open_parts[-1] += parts
            else:
                open_parts[-1].append(Shape("tuple", parts=tuple(parts)))
        elif dtype:
            array = _array(dtype, dimensions, layout or "")
            if array is None:
                return None
            open_parts[-1].append(array)
    return open_parts[0][0] if len(open_parts) == 1 and len(open_parts[0]) == 1 else None


def _array(dtype: str, dimensions: str, layout: str) -> Shape | None:
    sizes: list[int | None] = []
    for size in filter(None, (part.strip() for part in dimensions[1:-1].split(","))):
        bound = size.removeprefix("<=").strip()
        if bound.isdecimal() and bound.isascii() and len(bound) <= _MOST_DIGITS:
            sizes.append(int(bound))
        elif bound == "?":
            sizes.append(None)
        else:
            return None
    stated = _ELEMENT_SIZE.search(layout)
    return Shape(dtype, tuple(sizes), int(stated[1]) if stated else element_bits(dtype))


def element_bits(dtype: str) -> int | None:
    """Bits of one element: 4 for s4, 8 for pred, 64 for c64; None for a type that is not known."""
    width = _WIDTH.match(dtype)
    return int(width[1] or width[2]) if width else _BITS.get(dtype)
