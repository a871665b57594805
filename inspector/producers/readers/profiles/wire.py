"""Decode the wire format of protobuf: one message, or the same fields of many messages at once.

A profile has millions of small messages. The vectorized functions decode one field of all of them per step.
Source of the format: protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10  # bytes
# Of one message that is decoded with many others; an event has about ten.
_MOST_FIELDS = 10_000


class Damaged(Exception):
    """The bytes are not a message."""


class Field(NamedTuple):
    """One field: a number, or the place of its bytes.

    Attributes:
      number: that of the field.
      value: an integer, or the first byte of a field with a length or of fixed size.
      end: the byte after those; `value` for an integer.
    """

    number: int
    wire: int
    value: int
    end: int


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an integer at a place, and the place after it.

    Raises:
      Damaged: it goes on beyond `end`, or is too long.
    """
    value = shift = 0
    while at < end and shift < 7 * _LONGEST_VARINT:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise Damaged


def fields(data: bytes, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of one message.

    Raises:
      Damaged: the message ends inside of a field, or has a wire type that protobuf does not use.
    """
    at = begin
    while at < end:
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = varint(data, at, end)
            yield Field(number, wire, value, value)
            continue
        if wire == LENGTH:
            size, at = varint(data, at, end)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise Damaged
        if size > end - at or not number:
            raise Damaged
        yield Field(number, wire, at, at + size)
        at += size


class Column(NamedTuple):
    """The next field of several messages.

    Attributes:
      rows: indices of the messages that have a further field.
      number: numbers of their fields.
      wire: wire types of these.
      value: integers, or the first byte of a field with a length or of fixed size.
      end: the byte after those.
    """

    rows: Ints
    number: Ints
    wire: Ints
    value: Ints
    end: Ints


def columns(data: Bytes, begin: Ints, end: Ints) -> Iterator[Column]:
    """Yield the first field of all messages, then the second, until none has a further one.

    Args:
      data: bytes, with at least 16 after the end of each message.

    Raises:
      Damaged: as for `fields`.
    """
    rows = np.flatnonzero(begin < end)
    at, stop = begin[rows], end[rows]
    for _ in range(_MOST_FIELDS):
        if not rows.size:
            return
        tag, at = _varints(data, at)
        number, wire = tag >> 3, tag & 7
        value, last = np.zeros_like(tag), np.zeros_like(tag)
        is_varint = wire == VARINT
        if is_varint.any():
            value[is_varint], at[is_varint] = _varints(data, at[is_varint])
        others = ~is_varint
        if others.any():
            kinds, places = wire[others], at[others]
            sizes = np.where(kinds == FIXED64, 8, 4)
            has_length = kinds == LENGTH
            if has_length.any():
                sizes[has_length], places[has_length] = _varints(data, places[has_length])
            if not np.isin(kinds, (FIXED64, LENGTH, FIXED32)).all() or (sizes < 0).any():
                raise Damaged
            if (sizes > stop[others] - places).any():
                raise Damaged
            value[others], last[others] = places, places + sizes
            at[others] = places + sizes
        if (at > stop).any():
            raise Damaged
        yield Column(rows, number, wire, value, last)
        left = at < stop
        rows, at, stop = rows[left], at[left], stop[left]
    raise Damaged


def rows_by(values: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each value with the places that have it, in their order."""
    order = np.argsort(values, kind="stable")
    known, first = np.unique(values[order], return_index=True)
    yield from zip(
        known.tolist(), np.split(order, first[1:]), strict=False
    )  # without values, there is one empty part


def _varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Return the integers at several places, and the places after them. More than 63 bits are damaged."""
    byte = data[at]
    value = (byte & 127).astype(np.int64)
    at = at + 1
    more = np.flatnonzero(byte > 127)
    shift = 7
    while more.size:
        if shift > 63:
            raise Damaged
        byte = data[at[more]]
        value[more] |= (byte & 127).astype(np.int64) << shift
        at[more] += 1
        more = more[byte > 127]
        shift += 7
    return value, at
