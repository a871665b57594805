"""The forms of `Model.state_specs`, and ready-made ones. Imports no JAX: specs are read by their parts."""

from collections.abc import Iterable, Sequence
from typing import Any

from inspector.records.snapshot import Spec
from inspector.sharding.state_specs import LEAST_BYTES, MOST_ROWS, Fsdp, SpecRow, check_pattern
from inspector.text.errors import InvalidInput, shown


class RegexTable(tuple[SpecRow, ...]):
    """Rows in order: the first pattern found in the path of an array decides."""

    __slots__ = ()


def by_regex(rows: Iterable[tuple[str, Any]], *, full_match: bool = False) -> RegexTable:
    r"""Return PartitionSpecs by regular expressions, for `Model.state_specs`.

    Args:
      rows: (pattern, spec) in order. The first pattern found in the path of an array decides. A spec is a
        PartitionSpec, a tuple like one, or `fsdp(...)`. It can be shorter than the rank of the array.
      full_match: whether a pattern must match the whole path, as in big_vision. By default it can match any
        part of the path, as in EasyLM and EasyDeL.

    Raises:
      InvalidInput: a row has another form.

    Example:
      >>> from jax.sharding import PartitionSpec
      >>> from inspector.model import by_regex, fsdp
      >>> rows = by_regex([("bias|scale", ()), ("wq", PartitionSpec(None, "model")), (".*", fsdp("data"))])
      >>> [row.axes for row in rows]
      [(), ('model',), ('data',)]
    """
    parsed = tuple(_row(row, full_match) for row in rows)
    if len(parsed) > MOST_ROWS:
        raise InvalidInput(f"state_specs has {len(parsed):,} rows, at most {MOST_ROWS:,} are allowed")
    return RegexTable(parsed)


def fsdp(axis: str | Sequence[str], min_bytes: int = LEAST_BYTES) -> Fsdp:
    """Return the spec that shards the largest dimension which `axis` divides, as big_vision's `fsdp`.

    Args:
      axis: one mesh axis or several.
      min_bytes: arrays of at most this many bytes are replicated; 4 MiB by default.

    Raises:
      InvalidInput: if `axis` has another type, or `min_bytes` is below 0.

    Example:
      >>> from inspector.model import fsdp
      >>> row = fsdp("data", min_bytes=1024)
      >>> row.spec((512, 384), itemsize=4, sizes={"data": 8})
      (('data',), None)
      >>> row.spec((16,), itemsize=4, sizes={"data": 8})
      (None,)
    """
    axes = (axis,) if isinstance(axis, str) else tuple(axis)
    if not axes or not all(isinstance(axis, str) for axis in axes) or min_bytes < 0:
        raise InvalidInput(
            f"fsdp has the axis {shown(str(axis))} and min_bytes {min_bytes}, but must have names of mesh "
            "axes and a number of bytes"
        )
    return Fsdp(axes, int(min_bytes))


def table_of(given: Any) -> RegexTable | None:
    """Return `Model.state_specs` as a table. Return None if it is a function or a pytree."""
    if isinstance(given, RegexTable):
        return given
    if isinstance(given, Fsdp):
        return by_regex([(".*", given)])
    is_list = isinstance(given, (list, tuple)) and not hasattr(given, "_fields")
    if is_list and given and all(_is_pair(row) for row in given):
        return by_regex(given)
    return None


def spec_of(spec: Any) -> Spec | None:
    """Return a PartitionSpec, a tuple like one, or the spec of a NamedSharding. None if it is neither."""
    spec = getattr(spec, "spec", spec)
    # A PartitionSpec with unreduced axes cannot be iterated over.
    entries = getattr(spec, "partitions", spec)
    if not isinstance(entries, (tuple, list)):
        return None
    made: list[tuple[str, ...] | None] = []
    for entry in entries:
        axes = (entry,) if isinstance(entry, str) else entry
        if axes is None:
            made.append(None)
        elif isinstance(axes, (tuple, list)) and all(isinstance(axis, str) for axis in axes):
            made.append(tuple(axes) or None)
        else:
            return None
    return tuple(made)


def _is_pair(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and len(row) == 2 and isinstance(row[0], str)


def _row(row: Any, full_match: bool) -> SpecRow:
    if isinstance(row, SpecRow):
        return row
    if not _is_pair(row):
        raise InvalidInput(f"state_specs has {shown(str(row))}, but a row is (pattern, PartitionSpec)")
    pattern, given = row
    check_pattern(pattern)
    spec = given if isinstance(given, Fsdp) else spec_of(given)
    if spec is None:
        raise InvalidInput(
            f"state_specs: the pattern {shown(pattern)} has {shown(str(given))}, but must have a "
            "PartitionSpec or fsdp(axis)"
        )
    if full_match:
        pattern = f"^(?:{pattern})$" if "|" in pattern else f"^{pattern}$"
    return SpecRow(pattern, spec)
