"""The planes and lines of one profile, and the events of a line as arrays.

A file is one message `XSpace`. Each plane has lines of events, and tables of the names and statistics that
its events refer to. Source: github.com/openxla/xla/blob/main/xla/tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inspector.files import input_file
from inspector.readers import limits
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text

# Decode the wire format of protobuf: one message, or the same fields of many messages at once.
#
# A profile has millions of small messages. The vectorized functions decode one field of all of them per step.
# Source of the format: protobuf.dev/programming-guides/encoding.


Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10  # bytes
# Of one message that is decoded with many others; an event has about ten.
_MOST_FIELDS = 10_000


class Damaged(Exception):
    """The bytes are not a message."""


class WireField(NamedTuple):
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


def fields(data: bytes, begin: int, end: int) -> Iterator[WireField]:
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
            yield WireField(number, wire, value, value)
            continue
        if wire == LENGTH:
            size, at = varint(data, at, end)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise Damaged
        if size > end - at or not number:
            raise Damaged
        yield WireField(number, wire, at, at + size)
        at += size


class FieldColumn(NamedTuple):
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


def columns(data: Bytes, begin: Ints, end: Ints) -> Iterator[FieldColumn]:
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
        yield FieldColumn(rows, number, wire, value, last)
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


# Numbers of the fields of each message.
_PLANES = 1
_PLANE_NAME, _LINES, _EVENT_METADATA, _STAT_METADATA, _PLANE_STATS = 2, 3, 4, 5, 6
_LINE_NAME, _TIMESTAMP, _EVENTS, _DISPLAY_NAME = 2, 3, 4, 11
_EVENT_ID, _OFFSET, _DURATION, _EVENT_STATS = 1, 2, 3, 4
_METADATA_ID, _METADATA_NAME, _METADATA_STATS = 1, 2, 5
_STAT_ID, _DOUBLE, _UNSIGNED, _SIGNED, _TEXT, _RAW, _REFERENCE = 1, 2, 3, 4, 5, 6, 7
# Their wire types. A damaged file can have others.
_STAT_WIRES = {
    **dict.fromkeys((_STAT_ID, _UNSIGNED, _SIGNED, _REFERENCE), VARINT),
    **dict.fromkeys((_TEXT, _RAW), LENGTH),
    _DOUBLE: FIXED64,
}
_KEY, _VALUE = 1, 2  # of an entry of a map

_CHUNK = 200_000  # events that are decoded at once; each takes about 500 bytes meanwhile
_PADDING = 16  # bytes after each message, which `wire.columns` asks for
# Picoseconds of an event, and from the first to the last one: 13 days. Sums of three have less than 63 bits.
_LONGEST = 2**60

StatValue = int | float | str | tuple[int, int]


class Metadata(NamedTuple):
    """The name and the statistics that events have in common."""

    name: str
    stats: Mapping[str, StatValue]


@dataclass(frozen=True)
class EventLine:
    """A line of events.

    Attributes:
      begin: place of its first byte in the file.
      start_ns: nanoseconds from which the offsets of its events count.
    """

    name: str
    start_ns: int
    begin: int
    end: int


@dataclass(frozen=True)
class Events:
    """Some events of a line.

    Attributes:
      metadata: the keys of their metadata in the plane.
      start: picoseconds after `File.first_ns`.
      duration: picoseconds.
      numbers: integers by the name of the statistic, −1 for an event without it.
      texts: numbers in `strings` by the name of the statistic, −1 for an event without it.
    """

    metadata: Ints
    start: Ints
    duration: Ints
    numbers: Mapping[str, Ints]
    texts: Mapping[str, Ints]
    strings: list[str] = field(default_factory=list)


class File:
    """One profile.

    Attributes:
      cut: whether a plane is damaged, or the file ends inside of one.
      first_ns: nanoseconds from which the times of its events count.
      raw: its bytes, and as many zeros as `wire.columns` asks for.

    Raises:
      InvalidInput: it cannot be read, is too large, or is not a profile.
    """

    def __init__(self, path: Path, what: str) -> None:
        head = input_file.head(path, _PADDING, what)  # refuses other than regular files
        if not head:
            raise InvalidInput(f"{what} is empty: the process that profiled ended before it wrote the file")
        size = os.path.getsize(path)
        if size > limits.MOST_PROFILE_BYTES:
            raise InvalidInput(
                f"{what} has {bytes_text(size)}, but a profile has at most "
                f"{bytes_text(limits.MOST_PROFILE_BYTES)}, the most that protobuf can contain: profile fewer "
                "steps, and without the Python calls (ProfileOptions.python_tracer_level = 0)"
            )
        self.what = what
        with open(path, "rb") as file:
            self.raw = file.read(size) + bytes(_PADDING)
        self.data: Bytes = np.frombuffer(self.raw, np.uint8)
        self.cut = False
        self.planes = list(self._planes(size))
        if not self.planes:
            raise InvalidInput(f"{what} is not a profile of JAX: it has no plane of an XSpace")
        starts = sorted(line.start_ns for plane in self.planes for line in plane.lines)
        # A damaged line can be far from the others.
        usual = starts[(len(starts) - 1) // 2] if starts else 0
        self.first_ns = min((start for start in starts if (usual - start) * 1000 <= _LONGEST), default=0)

    def _planes(self, size: int) -> Iterator[Plane]:
        """Yield the planes that are complete."""
        try:
            for part in fields(self.raw, 0, size):
                if part.number > 5 or part.wire != LENGTH:  # an XSpace has four other lists of texts
                    raise InvalidInput(f"{self.what} is not a profile of JAX, but another file")
                if part.number == _PLANES and (plane := self._plane(part.value, part.end)) is not None:
                    yield plane
        except Damaged:
            self.cut = True

    def _plane(self, begin: int, end: int) -> Plane | None:
        try:
            return Plane(self, begin, end)
        except Damaged:
            self.cut = True
            return None


class Plane:
    """One plane. Its tables are read when they are first needed."""

    def __init__(self, file: File, begin: int, end: int) -> None:
        self.file = file
        self.name = ""
        self.lines: list[EventLine] = []
        self._event_metadata: dict[int, tuple[int, int]] = {}
        self._stats: list[tuple[int, int]] = []
        self.stat_names: dict[int, str] = {}
        for part in fields(file.raw, begin, end):
            if part.wire != LENGTH:
                continue
            if part.number == _PLANE_NAME:
                self.name = text_of(file.raw, part.value, part.end)
            elif part.number == _LINES:
                self.lines.append(_line(file.raw, part.value, part.end))
            elif part.number == _EVENT_METADATA:
                key, where = _entry(file.raw, part.value, part.end)
                self._event_metadata[key] = where
            elif part.number == _STAT_METADATA:
                key, where = _entry(file.raw, part.value, part.end)
                self.stat_names[key] = next(
                    (
                        text_of(file.raw, own.value, own.end)
                        for own in fields(file.raw, *where)
                        if own.number == _METADATA_NAME and own.wire == LENGTH
                    ),
                    "",
                )
            elif part.number == _PLANE_STATS:
                self._stats.append((part.value, part.end))

    @functools.cached_property
    def stats(self) -> Mapping[str, StatValue]:
        """The statistics of the plane itself."""
        return dict(_stat(self.file.raw, *where, self.stat_names) for where in self._stats)

    @functools.cached_property
    def metadata(self) -> Mapping[int, Metadata]:
        """Names and statistics of events by their key."""
        return {key: self._metadata(*where) for key, where in self._event_metadata.items()}

    def _metadata(self, begin: int, end: int) -> Metadata:
        name, stats = "", {}
        for part in fields(self.file.raw, begin, end):
            if part.wire != LENGTH:
                continue
            if part.number == _METADATA_NAME:
                name = text_of(self.file.raw, part.value, part.end)
            elif part.number == _METADATA_STATS:
                key, value = _stat(self.file.raw, part.value, part.end, self.stat_names)
                stats[key] = value
        return Metadata(name, stats)

    def events(
        self, line: EventLine, numbers: Collection[str] = (), texts: Collection[str] = ()
    ) -> Iterator[Events]:
        """Yield the events of a line in chunks, with these statistics of theirs."""
        first_ps = (line.start_ns - self.file.first_ns) * 1000
        if not 0 <= first_ps <= _LONGEST:
            raise Damaged
        begins, ends = [], []
        for part in fields(self.file.raw, line.begin, line.end):
            if part.number == _EVENTS and part.wire == LENGTH:
                begins.append(part.value)
                ends.append(part.end)
        for first in range(0, len(begins), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            yield self._decoded(
                np.array(begins[chunk], np.int64), np.array(ends[chunk], np.int64), first_ps, numbers, texts
            )

    def _decoded(
        self, begin: Ints, end: Ints, first_ps: int, numbers: Collection[str], texts: Collection[str]
    ) -> Events:
        data = self.file.data
        count = len(begin)
        metadata, offset, duration = (np.zeros(count, np.int64) for _ in range(3))
        owners: list[Ints] = []
        begins: list[Ints] = []
        ends: list[Ints] = []
        for column in columns(data, begin, end):
            for number, target in ((_EVENT_ID, metadata), (_OFFSET, offset), (_DURATION, duration)):
                chosen = (column.number == number) & (column.wire == VARINT)
                target[column.rows[chosen]] = column.value[chosen]
            of_stats = (column.number == _EVENT_STATS) & (column.wire == LENGTH)
            if of_stats.any():
                owners.append(column.rows[of_stats])
                begins.append(column.value[of_stats])
                ends.append(column.end[of_stats])
        check_times(offset, duration)
        by_name: dict[str, Ints] = {name: np.full(count, -1, np.int64) for name in (*numbers, *texts)}
        strings: list[str] = []
        if owners and by_name:
            owner, first, last = map(np.concatenate, (owners, begins, ends))
            self._read_stats(owner, first, last, by_name, frozenset(texts), strings)
        return Events(
            metadata,
            first_ps + offset,
            duration,
            {name: by_name[name] for name in numbers},
            {name: by_name[name] for name in texts},
            strings,
        )

    def _read_stats(
        self,
        owner: Ints,
        begin: Ints,
        end: Ints,
        by_name: Mapping[str, Ints],
        texts: frozenset[str],
        strings: list[str],
    ) -> None:
        """Write the values of statistics into `by_name`, and texts into `strings`."""
        data = self.file.data
        known: dict[str, int] = {}

        def text_number(text: str) -> int:
            if text not in known:
                known[text] = len(strings)
                strings.append(text)
            return known[text]

        wanted: dict[str, list[int]] = {name: [] for name in by_name}
        for key, name in self.stat_names.items():
            if name in wanted and key < 2**63:
                wanted[name].append(key)
        keys = np.full(len(owner), -1, np.int64)
        values, kinds = np.zeros(len(owner), np.int64), np.zeros(len(owner), np.int64)
        lasts = np.zeros(len(owner), np.int64)
        for column in columns(data, begin, end):
            is_key = column.number == _STAT_ID
            keys[column.rows[is_key]] = column.value[is_key]
            has_value = column.number > _STAT_ID
            rows = column.rows[has_value]
            values[rows], kinds[rows] = column.value[has_value], column.number[has_value]
            lasts[rows] = column.end[has_value]
        for name, own in wanted.items():
            rows = np.flatnonzero(np.isin(keys, np.array(own, np.int64)))
            if name not in texts:
                chosen = rows[np.isin(kinds[rows], (_UNSIGNED, _SIGNED))]
                by_name[name][owner[chosen]] = values[chosen]
                continue
            of_reference = rows[kinds[rows] == _REFERENCE]
            references, places = np.unique(values[of_reference], return_inverse=True)
            names = [text_number(self.stat_names.get(int(reference), "")) for reference in references]
            by_name[name][owner[of_reference]] = np.array(names, np.int64)[places]
            of_text = rows[kinds[rows] == _TEXT]
            for row in of_text.tolist():
                by_name[name][owner[row]] = text_number(
                    text_of(self.file.raw, int(values[row]), int(lasts[row]))
                )


def check_times(*picoseconds: Ints) -> None:
    """Raise Damaged if a time is negative or too long."""
    if any(((times < 0) | (times > _LONGEST)).any() for times in picoseconds):
        raise Damaged


def text_of(raw: bytes, begin: int, end: int) -> str:
    """Return bytes of a file as text."""
    return raw[begin:end].decode("utf-8", "replace")


def _line(raw: bytes, begin: int, end: int) -> EventLine:
    """Return a line without its events. They come after its name, except for a longer one to display."""
    name, start = "", 0
    for part in fields(raw, begin, end):
        if part.number == _LINE_NAME and part.wire == LENGTH:
            name = text_of(raw, part.value, part.end)
        elif part.number == _TIMESTAMP and part.wire == VARINT:
            start = part.value
        elif part.number == _EVENTS:
            break
    return EventLine(name, start, begin, end)


def _entry(raw: bytes, begin: int, end: int) -> tuple[int, tuple[int, int]]:
    """Return the key of an entry of a map, and the place of its value."""
    key, where = 0, (begin, begin)
    for part in fields(raw, begin, end):
        if part.number == _KEY and part.wire == VARINT:
            key = part.value
        elif part.number == _VALUE and part.wire == LENGTH:
            where = part.value, part.end
    return key, where


def _stat(raw: bytes, begin: int, end: int, names: Mapping[int, str]) -> tuple[str, StatValue]:
    """Return name and value of a statistic: a number, a text, or the place of raw bytes."""
    name = ""
    value: StatValue = ""
    for part in fields(raw, begin, end):
        if part.wire != _STAT_WIRES.get(part.number):
            continue
        if part.number == _STAT_ID:
            name = names.get(part.value, "")
        elif part.number in (_UNSIGNED, _SIGNED):
            value = part.value
        elif part.number == _DOUBLE:
            value = float(np.frombuffer(raw[part.value : part.end], "<f8")[0])
        elif part.number == _TEXT:
            value = text_of(raw, part.value, part.end)
        elif part.number == _RAW:
            value = (part.value, part.end)
        elif part.number == _REFERENCE:
            value = names.get(part.value, "")
    return name, value
