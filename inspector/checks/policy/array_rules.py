"""Rules about the placement and the bytes of arrays."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from inspector.checks.policy.fields import Fields, check_known
from inspector.checks.policy.outcome import Outcome, Violation, first_and_more, name
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
    elements_text,
    exact_bytes_text,
    mesh_axes_text,
    spec_text,
)
from inspector.core.snapshot import Array, Mesh, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.machines.prediction import memory

_MAX_NAMED = 5  # arrays in a violation about many


@dataclass(frozen=True)
class Replicated:
    """No array larger than `over` bytes is replicated on every device.

    With `along`, none is replicated along one of these mesh axes. On one device nothing is replicated.
    """

    selection: Selection
    over: int
    along: tuple[str, ...] | None
    title: str = "replicated"

    def outcome(self, snapshot: Snapshot) -> Outcome:
        mesh = mesh_of(snapshot)
        for axis in self.along or ():
            check_known(axis, mesh.axis_names, "along")
        wanted = set(larger_axes(mesh))
        violations, unknown = [], []
        for array in _largest_first(self.selection.arrays(snapshot)):
            if array.bytes is not None and array.bytes <= self.over:
                continue
            unsplit = unsplit_axes(array, mesh)
            if unsplit is None:
                unknown.append(array)
                continue
            how = [f"not sharded over {name(axis)}" for axis in self.along or () if axis in unsplit]
            if self.along is None and wanted and wanted <= set(unsplit):
                how.append(f"replicated on all {counted(mesh.size, 'device')}")
            if how and array.bytes is None:
                unknown.append(array)
                continue
            violations += [
                Violation(
                    f"{name(array.path)}: {exact_bytes_text(array.bytes)} {words} "
                    f"(limit {exact_bytes_text(self.over)})",
                    array.path,
                )
                for words in how
            ]
        return Outcome(self.title, tuple(violations), _unknown("placement or size", unknown))


@dataclass(frozen=True)
class Duplicated:
    """At most this share of the bytes on all devices are further copies.

    The share is (bytes on all devices − bytes once) / bytes on all devices: 0 without replication, 87.5%
    if everything is replicated on 8 devices.
    """

    selection: Selection
    most_percent: Decimal
    title: str = "duplicated"

    def outcome(self, snapshot: Snapshot) -> Outcome:
        mesh = mesh_of(snapshot)
        arrays = self.selection.arrays(snapshot)
        held = {array.path: memory.bytes_everywhere(array, mesh) for array in arrays}
        missing = [one for one in arrays if one.bytes is None or held[one.path] is None]
        if missing:
            return Outcome(self.title, (), _unknown("bytes", missing))
        again = {one.path: (held[one.path] or 0) - (one.bytes or 0) for one in arrays}
        duplicated, everywhere = sum(again.values()), sum(number or 0 for number in held.values())
        if duplicated * 100 <= self.most_percent * everywhere:
            return Outcome(self.title)
        largest = sorted((one for one in again.items() if one[1] > 0), key=lambda one: -one[1])
        named = ", ".join(
            f"{name(path)} {bytes_text(number)}" for path, number in largest[:_MAX_NAMED]
        )
        sentence = (
            f"{_percent(duplicated, everywhere, self.most_percent)} of the bytes on all devices are "
            f"duplicates, {bytes_text(duplicated)} of {bytes_text(everywhere)} (limit "
            f"{self.most_percent:f}%); the largest: {named}"
        )
        return Outcome(self.title, (Violation(sentence),))


@dataclass(frozen=True)
class NotFullySharded:
    """At most this share of the bytes (counted once) is in arrays that are not sharded over all of `axes`.

    The default is all mesh axes larger than 1. MaxText's `assert_params_sufficiently_sharded` computes the
    same share over its own list of axes, with a tolerance of 2%. If bytes are unknown, elements count.
    """

    selection: Selection
    most_percent: Decimal
    axes: tuple[str, ...] | None
    title: str = "not_fully_sharded"

    def outcome(self, snapshot: Snapshot) -> Outcome:
        mesh = mesh_of(snapshot)
        for axis in self.axes or ():
            check_known(axis, mesh.axis_names, "axes")
        larger = larger_axes(mesh)
        wanted = [axis for axis in larger if self.axes is None or axis in self.axes]
        arrays = self.selection.arrays(snapshot)
        missing = {one.path: _missing(one, mesh, wanted) for one in arrays}
        unknown = [one for one in arrays if missing[one.path] is None]
        if unknown:
            return Outcome(self.title, (), _unknown("placement", unknown))
        by_bytes = all(one.bytes is not None for one in arrays)
        weight = {one.path: one.bytes if by_bytes else math.prod(one.shape) for one in arrays}
        bad = [one for one in arrays if missing[one.path]]
        much = sum(weight[one.path] or 0 for one in bad)
        whole = sum(number or 0 for number in weight.values())
        if much * 100 <= self.most_percent * whole:
            return Outcome(self.title)
        in_unit = bytes_text if by_bytes else elements_text
        largest = sorted(bad, key=lambda one: -(weight[one.path] or 0))[:_MAX_NAMED]
        named = ", ".join(
            f"{name(one.path)} {in_unit(weight[one.path])} {name(spec_text(one.spec))} not over "
            f"{mesh_axes_text(missing[one.path] or (), name)}"
            for one in largest
        )
        sentence = (
            f"{_percent(much, whole, self.most_percent)} of the {'bytes' if by_bytes else 'elements'} are in "
            f"arrays not sharded over all of {', '.join(map(name, wanted))} (limit {self.most_percent:f}%); "
            f"the largest: {named}"
        )
        return Outcome(self.title, (Violation(sentence),))


@dataclass(frozen=True)
class BytesPerDevice:
    """The arrays take at most `most` bytes on the fullest device."""

    selection: Selection
    most: int
    title: str = "bytes_per_device"

    def outcome(self, snapshot: Snapshot) -> Outcome:
        arrays = self.selection.arrays(snapshot)
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
        largest = sorted(arrays, key=lambda one: -(one.bytes_per_device or 0))[:_MAX_NAMED]
        named = ", ".join(f"{name(one.path)} {bytes_text(one.bytes_per_device)}" for one in largest)
        sentence = (
            f"{exact_bytes_text(total)} of {', '.join(self.selection.groups)} on {where} (limit "
            f"{exact_bytes_text(self.most)}); the largest: {named}"
        )
        return Outcome(self.title, (Violation(sentence),))


def read_replicated(fields: Fields) -> Replicated:
    fields.require("over")
    selection = read_selection(fields, ("params",))
    return Replicated(selection, fields.size("over") or 0, fields.texts("along"))


def read_duplicated(fields: Fields) -> Duplicated:
    return Duplicated(read_selection(fields, STATE_GROUPS), _share(fields))


def read_not_fully_sharded(fields: Fields) -> NotFullySharded:
    selection = read_selection(fields, ("params",))
    return NotFullySharded(selection, _share(fields), fields.texts("axes"))


def read_bytes_per_device(fields: Fields) -> BytesPerDevice:
    fields.require("most")
    return BytesPerDevice(read_selection(fields, STATE_GROUPS), fields.size("most") or 0)


def _share(fields: Fields) -> Decimal:
    fields.require("most_percent")
    return fields.percent("most_percent") or Decimal(0)


def _missing(array: Array, mesh: Mesh, wanted: list[str]) -> tuple[str, ...] | None:
    """Return the axes that do not split the array, or None if unknown."""
    unsplit = unsplit_axes(array, mesh)
    return None if unsplit is None else tuple(axis for axis in wanted if axis in unsplit)


def _largest_first(arrays: Iterable[Array]) -> list[Array]:
    return sorted(arrays, key=lambda array: (-(array.bytes or 0), array.path))


def _unknown(what: str, arrays: list[Array]) -> str | None:
    return f"unknown {what} of {first_and_more([one.path for one in arrays])}" if arrays else None


def _percent(part: int, whole: int, limit: Decimal) -> str:
    """Return a share above a limit, with at least two decimals, and enough to show that it is above."""
    share = Decimal(part) * 100 / Decimal(whole)
    texts = (f"{share:.{decimals}f}" for decimals in range(2, 20))
    return next((text for text in texts if Decimal(text) > limit), f"{share:f}") + "%"
