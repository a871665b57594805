"""A Snapshot as the audit looks at it: what each check asks for, found once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inspector.checks.audit import thresholds
from inspector.checks.audit.moments import parameters_of_moments
from inspector.core.folding import Fold, fold
from inspector.core.formatting import bytes_text, counted
from inspector.core.rules import Rule
from inspector.core.rules.recorded import recorded, semantics
from inspector.core.snapshot import (
    Array,
    Finding,
    Level,
    Mesh,
    Snapshot,
    Spec,
)
from inspector.core.totals import STATE_GROUPS, in_elements
from inspector.model import RulesSemantics

# At most so many free mesh axes are tried out on an array; more than six that are larger than 1 would need
# a mesh of 128 devices with seven axes.
_MOST_FREE_AXES = 6


@dataclass(frozen=True)
class Examined:
    """A Snapshot with a mesh, and what its checks share.

    Where the types of arrays are not known, `in_elements` is true, and whatever is called bytes counts
    elements; no finding then tells bytes.
    """

    found: Snapshot
    mesh: Mesh
    in_elements: bool = False

    @functools.cached_property
    def rules(self) -> tuple[Rule, ...] | None:
        return recorded(self.found)

    @functools.cached_property
    def semantics(self) -> RulesSemantics:
        return semantics(self.found)

    @property
    def decided_by(self) -> str:
        """What a layout of this kind says where arrays go with."""
        by_rules = self.rules is not None or any(one.logical_axes for one in self.found.arrays)
        return "rule" if by_rules else "PartitionSpec"

    @functools.cached_property
    def state_bytes(self) -> int:
        """Bytes of train state on one device; arrays whose placement is unknown count nothing."""
        return sum(
            array.bytes_per_device or 0
            for array in self.found.arrays
            if array.group in STATE_GROUPS
        )

    @property
    def least(self) -> float:
        """Bytes a device from which on something is worth telling."""
        return max(thresholds.LEAST_SHARE * self.state_bytes, thresholds.LEAST_BYTES)

    @functools.cached_property
    def parameters(self) -> dict[str, Array]:
        """The parameter of each moment of the optimizer, by the moment's path."""
        return parameters_of_moments(self.found.arrays)

    def amount(self, number: int | None) -> str:
        """Bytes, or elements where types are not known, in words."""
        if self.in_elements and number is not None:
            return counted(number, "element")
        return bytes_text(number)

    @functools.cached_property
    def trivial(self) -> frozenset[str]:
        """Mesh axes of size 1, which split nothing."""
        return frozenset(axis.name for axis in self.mesh.axes if axis.size == 1)

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays whose shape is known; of the others only the spec is."""
        return tuple(array for array in self.found.arrays if array.shape is not None)

    def of_group(self, *groups: str) -> list[Array]:
        return [array for array in self.arrays if array.group in groups]

    def folds(self, *groups: str) -> tuple[Fold, ...]:
        """The arrays of these groups, identical layers folded into one."""
        return fold(self.of_group(*groups))

    def is_whole(self, array: Array) -> bool:
        """Whether every device holds all of it."""
        return array.replicas == self.mesh.size > 1 and (
            array.shards is None or array.bytes_per_device == array.bytes
        )

    def free_axes(self, spec: Spec) -> tuple[str, ...]:
        """The mesh axes larger than 1 that do not split it yet."""
        used = {axis for axes in spec for axis in axes or ()}
        return tuple(
            axis.name for axis in self.mesh.axes if axis.size > 1 and axis.name not in used
        )

    def finest(self, array: Array) -> tuple[int, tuple[str, ...]]:
        """Bytes that a device would hold of it, split as finely as evenly possible, and by which more axes.

        The bytes it holds now and no axes where that is not known.
        """
        held = array.bytes_per_device or 0
        if array.spec is None:
            return held, ()
        ways, axes = finest_split(array.shape, array.spec, self.mesh, self.free_axes(array.spec))
        return held // ways, axes

    def saved(self, array: Array) -> int:
        """Bytes a device that `finest` saves."""
        return (array.bytes_per_device or 0) - self.finest(array)[0]


def examine(found: Snapshot, mesh: Mesh) -> Examined:
    """The Snapshot as its checks see it: in elements where no array's bytes are known, else in bytes."""
    elements = in_elements(found)
    if elements is None:
        return Examined(found, mesh)
    return Examined(elements, mesh, in_elements=True)


def finest_split(
    shape: Sequence[int], spec: Spec, mesh: Mesh, free: Sequence[str]
) -> tuple[int, tuple[str, ...]]:
    """In how many more parts these axes can cut an array evenly, and the axes that do.

    Of several choices the one with the most parts, then the one with the fewest axes.
    """
    sizes = {axis.name: axis.size for axis in mesh.axes}
    parts = [
        size // ways if size and size % ways == 0 else 0
        for size, ways in zip(shape, (mesh.ways(axes) for axes in spec), strict=True)
    ]
    return _finest(tuple(parts), tuple((axis, sizes[axis]) for axis in free[:_MOST_FREE_AXES]))


@functools.lru_cache(maxsize=4096)
def _finest(
    parts: tuple[int, ...], free: tuple[tuple[str, int], ...]
) -> tuple[int, tuple[str, ...]]:
    best: tuple[int, tuple[str, ...]] = (1, ())
    for count in range(1, len(free) + 1):
        for chosen in itertools.combinations(free, count):
            ways = math.prod(size for _, size in chosen)
            if ways > best[0] and _fits(parts, tuple(size for _, size in chosen)):
                best = ways, tuple(name for name, _ in chosen)
    return best


def _fits(parts: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether every one of these axes can cut some dimension evenly, several the same one if need be."""
    if not sizes:
        return True
    first, *rest = sizes
    return any(
        part
        and part % first == 0
        and _fits((*parts[:at], part // first, *parts[at + 1 :]), tuple(rest))
        for at, part in enumerate(parts)
    )


def subject(one: Fold) -> str:
    """The fold's path, and how many arrays it stands for: `params/block_{0…3}/W2 (4 equal arrays)`."""
    return one.path if one.count == 1 else f"{one.path} ({counted(one.count, 'equal array')})"


def finding(
    level: Level,
    code: str,
    message: str,
    *,
    folds: Sequence[Fold] = (),
    saved: int | None = None,
    remedy: str | None = None,
    **extra: object,
) -> Finding:
    """A finding about these folds, the first of which it points at; `saved` is bytes on one device."""
    told: dict[str, object] = {"per_device": True} if saved is not None else {}
    if folds:
        told["arrays"] = [one.path for one in folds]
        told["count"] = sum(one.count for one in folds)
    if remedy is not None:
        told["remedy"] = remedy
    array = folds[0].first.path if folds else None
    return Finding(level, code, message, array, saved, extra={**told, **extra})


def worth_telling(
    candidates: Iterable[tuple[int, Fold]], least: float
) -> tuple[list[tuple[int, Fold]], list[tuple[int, Fold]]]:
    """Those that are told by themselves, and those that are told together, both the largest first.

    The second is empty where even together they are not worth it.
    """
    ranked = sorted(candidates, key=lambda one: -one[0])
    alone = [one for one in ranked if one[0] >= least][: thresholds.MOST_OF_A_KIND]
    rest = ranked[len(alone) :]
    return alone, rest if sum(saved for saved, _ in rest) >= least else []


def names_text(names: Sequence[str], conjunction: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {conjunction} {names[-1]}"
