"""PartitionSpecs by the path of an array: a table of regular expressions, and FSDP by size.

The first pattern found in a path decides (`re.search`), as EasyLM's `match_partition_rules` and EasyDeL read
their tables. An array with one element is replicated before any pattern is tried, as there. `Fsdp` shards as
big_vision's `fsdp` does (big_vision/sharding.py).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inspector.records.snapshot import Spec
from inspector.text.errors import InvalidInput, shown

LEAST_BYTES = 4 * 2**20  # `min_size_to_shard_mb` of big_vision
MOST_ROWS = 200  # EasyDeL's longest table has 40
MOST_CHARACTERS = 300  # of a pattern


@dataclass(frozen=True)
class Fsdp:
    """Shard the largest dimension that the mesh axes divide; of equal ones the last.

    An array of at most `min_bytes` bytes, and one without such a dimension, is replicated.
    """

    axes: tuple[str, ...]
    min_bytes: int = LEAST_BYTES

    def spec(self, shape: Sequence[int], itemsize: int, sizes: Mapping[str, int]) -> Spec:
        """Return the spec of an array, given the size of each mesh axis."""
        whole: Spec = (None,) * len(shape)
        if math.prod(shape) * itemsize <= self.min_bytes:
            return whole
        ways = math.prod(sizes[axis] for axis in self.axes)
        fitting = [place for place, size in enumerate(shape) if size % ways == 0]
        if not fitting:
            return whole
        chosen = max(fitting, key=lambda place: (shape[place], place))
        return (*whole[:chosen], self.axes, *whole[chosen + 1 :])


@dataclass(frozen=True)
class SpecRow:
    """A pattern, and the spec of the arrays whose path contains it. A short spec leaves the rest whole."""

    pattern: str
    spec: Spec | Fsdp

    @property
    def axes(self) -> tuple[str, ...]:
        """All mesh axes that the row names."""
        if isinstance(self.spec, Fsdp):
            return self.spec.axes
        return tuple(axis for axes in self.spec for axis in axes or ())


def check_pattern(pattern: str) -> None:
    """Raise InvalidInput if the text is not a regular expression of at most `MOST_CHARACTERS`."""
    if not pattern or not pattern.isprintable() or len(pattern) > MOST_CHARACTERS:
        raise InvalidInput(
            f"state_specs has the pattern {shown(pattern)}, but a pattern has 1 to {MOST_CHARACTERS} "
            "printable characters"
        )
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"state_specs has the pattern {shown(pattern)}, which is not a regular expression: {error}"
        ) from None


def row_for(rows: Sequence[SpecRow], path: str) -> int | None:
    """Return the number of the first row whose pattern is found in the path, or None."""
    return next((number for number, row in enumerate(rows) if re.search(row.pattern, path)), None)


def spec_of(row: SpecRow, path: str, shape: Sequence[int], itemsize: int, sizes: Mapping[str, int]) -> Spec:
    """Return the spec that a row gives an array, with an entry for each dimension.

    Raises:
      InvalidInput: the row has more entries than the array has dimensions, or a mesh axis is unknown.
    """
    for axis in row.axes:
        if axis not in sizes:
            raise InvalidInput(
                f"state_specs: the pattern {shown(row.pattern)} names mesh axis {shown(axis)}, but the mesh "
                f"has {', '.join(sizes)}"
            )
    if isinstance(row.spec, Fsdp):
        return row.spec.spec(shape, itemsize, sizes)
    return padded(row.spec, path, len(shape), f"the pattern {shown(row.pattern)}")


def padded(spec: Spec, path: str, rank: int, owner: str) -> Spec:
    """Return the spec with None for each missing dimension, as JAX reads it.

    Raises:
      InvalidInput: the spec has more entries than the array has dimensions.
    """
    if len(spec) > rank:
        raise InvalidInput(
            f"state_specs: {owner} gives {path} {len(spec)} entries, but the array has "
            f"{rank} dimension{'s' * (rank != 1)}"
        )
    return (*spec, *(None,) * (rank - len(spec)))
