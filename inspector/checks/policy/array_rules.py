"""Rules about where arrays lie and what they take."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from inspector.checks.policy.fields import Fields, refuse_unknown
from inspector.checks.policy.outcome import Outcome, Violation, name
from inspector.checks.policy.selection import (
    Selection,
    larger_axes,
    mesh_of,
    read_selection,
    unsplit_axes,
)
from inspector.core.formatting import (
    bytes_text,
    counted,
    exact_bytes_text,
    mesh_axes_text,
    spec_text,
)
from inspector.core.snapshot import Array, Mesh, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.machines.prediction import memory

WORST = 5  # arrays that a sentence about many names


@dataclass(frozen=True)
class Replicated:
    """No array larger than `over` bytes is whole on every device.

    With `along`, none is unsplit over one of these mesh axes: devices that differ only in their place
    along it hold the same. On a mesh of one device nothing is replicated.
    """

    selection: Selection
    over: int
    along: tuple[str, ...] | None
    title: str = "replicated"

    def outcome(self, found: Snapshot) -> Outcome:
        mesh = mesh_of(found)
        for axis in self.along or ():
            refuse_unknown(axis, mesh.axis_names, "along")
        wanted = set(larger_axes(mesh))
        violations, unknown = [], []
        for array in _largest_first(self.selection.arrays(found)):
            if array.bytes is not None and array.bytes <= self.over:
                continue
            unsplit = unsplit_axes(array, mesh)
            if unsplit is None:
                unknown.append(array)
                continue
            how = [f"not split over {name(axis)}" for axis in self.along or () if axis in unsplit]
            if self.along is None and wanted and wanted <= set(unsplit):
                how.append(f"whole on each of {counted(mesh.size, 'device')}")
            if how and array.bytes is None:
                unknown.append(array)
                continue
            violations += [Violation(self._sentence(array, words), array.path) for words in how]
        return Outcome(self.title, tuple(violations), _unknown("placement or size", unknown))

    def _sentence(self, array: Array, how: str) -> str:
        return (
            f"{name(array.path)}: {exact_bytes_text(array.bytes)} {how}, "
            f"at most {exact_bytes_text(self.over)} may be"
        )


@dataclass(frozen=True)
class Duplicated:
    """At most so many percent of the bytes on all devices are there a second time.

    (bytes on all devices − bytes once) / bytes on all devices: 0 where nothing is on two devices, 87.5
    where all is on each of 8.
    """

    selection: Selection
    most_percent: Decimal
    title: str = "duplicated"

    def outcome(self, found: Snapshot) -> Outcome:
        mesh = mesh_of(found)
        arrays = self.selection.arrays(found)
        held = {array.path: memory.bytes_everywhere(array, mesh) for array in arrays}
        missing = [one for one in arrays if one.bytes is None or held[one.path] is None]
        if missing:
            return Outcome(self.title, (), _unknown("bytes", missing))
        again = {one.path: (held[one.path] or 0) - (one.bytes or 0) for one in arrays}
        duplicated, everywhere = sum(again.values()), sum(number or 0 for number in held.values())
        if duplicated * 100 <= self.most_percent * everywhere:
            return Outcome(self.title)
        worst = sorted((one for one in again.items() if one[1] > 0), key=lambda one: -one[1])[
            :WORST
        ]
        named = ", ".join(f"{name(path)} {bytes_text(number)}" for path, number in worst)
        return Outcome(
            self.title,
            (
                Violation(
                    f"{_percent(duplicated, everywhere, self.most_percent)} of the bytes on all devices are "
                    f"duplicates ({bytes_text(duplicated)} of {bytes_text(everywhere)}), at most "
                    f"{self.most_percent:f}% may be; the worst: {named}"
                ),
            ),
        )


@dataclass(frozen=True)
class NotFullySharded:
    """At most so many percent of the bytes (each once) are of arrays not split over every one of `axes`.

    By default the axes are all that are larger than 1. This is what MaxText's
    `assert_params_sufficiently_sharded` counts over its own list of axes, with a tolerance of 2%. Where
    the bytes of an array are not known, elements are counted in place of bytes.
    """

    selection: Selection
    most_percent: Decimal
    axes: tuple[str, ...] | None
    title: str = "not_fully_sharded"

    def outcome(self, found: Snapshot) -> Outcome:
        mesh = mesh_of(found)
        for axis in self.axes or ():
            refuse_unknown(axis, mesh.axis_names, "axes")
        larger = larger_axes(mesh)
        wanted = [axis for axis in larger if self.axes is None or axis in self.axes]
        arrays = self.selection.arrays(found)
        missing = {one.path: _missing(one, mesh, wanted) for one in arrays}
        unknown = [one for one in arrays if missing[one.path] is None]
        if unknown:
            return Outcome(self.title, (), _unknown("placement", unknown))
        by_bytes = all(one.bytes is not None for one in arrays)
        weight = {one.path: one.bytes if by_bytes else math.prod(one.shape) for one in arrays}
        bad = [one for one in arrays if missing[one.path]]
        much, whole = (
            sum(weight[one.path] or 0 for one in bad),
            sum(n or 0 for n in weight.values()),
        )
        if much * 100 <= self.most_percent * whole:
            return Outcome(self.title)
        worst = sorted(bad, key=lambda one: -(weight[one.path] or 0))[:WORST]
        named = ", ".join(
            f"{name(one.path)} {bytes_text(one.bytes) if by_bytes else f'{weight[one.path]:,} elements'} "
            f"{name(spec_text(one.spec))} not over {mesh_axes_text(missing[one.path] or (), name)}"
            for one in worst
        )
        return Outcome(
            self.title,
            (
                Violation(
                    f"{_percent(much, whole, self.most_percent)} of the "
                    f"{'bytes' if by_bytes else 'elements'} are of arrays not split over each of "
                    f"{', '.join(map(name, wanted))}, at most {self.most_percent:f}% may "
                    f"be; the worst: {named}"
                ),
            ),
        )


@dataclass(frozen=True)
class BytesPerDevice:
    """The arrays take at most so many bytes on any one device; by default those of the train state."""

    selection: Selection
    most: int
    title: str = "bytes_per_device"

    def outcome(self, found: Snapshot) -> Outcome:
        arrays = self.selection.arrays(found)
        unknown = [one for one in arrays if one.shards is None and one.bytes_per_device is None]
        unknown += [one for one in arrays if one.shards is not None and one.bytes is None]
        if unknown:
            return Outcome(self.title, (), _unknown("bytes per device", unknown))
        everywhere = sum(one.bytes_per_device or 0 for one in arrays if one.shards is None)
        on_device: dict[int, int] = defaultdict(int)
        for array in arrays:
            elements = math.prod(array.shape)
            for shard in array.shards or ():
                held = math.prod(stop - start for start, stop in shard.index)
                on_device[shard.device] += held * (array.bytes or 0) // elements if elements else 0
        device, more = max(on_device.items(), key=lambda one: one[1], default=(None, 0))
        total = everywhere + more
        if total <= self.most:
            return Outcome(self.title)
        where = "each device" if device is None else f"device {device}"
        worst = sorted(arrays, key=lambda one: -(one.bytes_per_device or 0))[:WORST]
        named = ", ".join(f"{name(one.path)} {bytes_text(one.bytes_per_device)}" for one in worst)
        return Outcome(
            self.title,
            (
                Violation(
                    f"{exact_bytes_text(total)} of {', '.join(self.selection.groups)} on {where}, at most "
                    f"{exact_bytes_text(self.most)} may be; the largest: {named}"
                ),
            ),
        )


def read_replicated(fields: Fields) -> Replicated:
    """`over`, `along`; of parameters where no groups are named."""
    fields.require("over")
    selection = read_selection(fields, ("params",))
    return Replicated(selection, _given(fields.size("over")), fields.texts("along"))


def read_duplicated(fields: Fields) -> Duplicated:
    """`most_percent`; of the train state where no groups are named."""
    fields.require("most_percent")
    selection = read_selection(fields, STATE_GROUPS)
    return Duplicated(selection, _given(fields.percent("most_percent")))


def read_not_fully_sharded(fields: Fields) -> NotFullySharded:
    """`most_percent`, `axes`; of parameters where no groups are named."""
    fields.require("most_percent")
    selection = read_selection(fields, ("params",))
    return NotFullySharded(selection, _given(fields.percent("most_percent")), fields.texts("axes"))


def read_bytes_per_device(fields: Fields) -> BytesPerDevice:
    """`most`; of the train state where no groups are named."""
    fields.require("most")
    return BytesPerDevice(read_selection(fields, STATE_GROUPS), _given(fields.size("most")))


def _given(value):
    assert value is not None, "a required field is there"
    return value


def _missing(array: Array, mesh: Mesh, wanted: list[str]) -> tuple[str, ...] | None:
    """The wanted axes that do not split it. An array without elements, or on one device, misses none."""
    unsplit = unsplit_axes(array, mesh)
    return None if unsplit is None else tuple(axis for axis in wanted if axis in unsplit)


def _largest_first(arrays: Iterable[Array]) -> list[Array]:
    return sorted(arrays, key=lambda array: (-(array.bytes or 0), array.path))


def _unknown(what: str, arrays: list[Array]) -> str | None:
    if not arrays:
        return None
    more = f" and {len(arrays) - 1} more" if len(arrays) > 1 else ""
    verb = "are" if what.startswith("bytes") else "is"
    return f"the {what} of {name(arrays[0].path)}{more} {verb} unknown"


def _percent(part: int, whole: int, limit: Decimal) -> str:
    """A share above a limit, with as many decimals as tell it from the limit, two at least."""
    share = Decimal(part) * 100 / Decimal(whole)
    texts = (f"{share:.{decimals}f}" for decimals in range(2, 20))
    return next((text for text in texts if Decimal(text) > limit), f"{share:f}") + "%"
