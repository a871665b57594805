"""Values as Python writes them. A name is data: whatever it holds, it ends up inside quotes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inspector.core.snapshot import Spec
from inspector.layout.fields import NAME

WIDTH = 100  # columns


def literal(value: Any) -> str:
    """A number, a text, None, or a tuple, list or mapping of them, on one line."""
    if isinstance(value, str):
        # Everything but plain names as Python's own `repr` has it.
        return f'"{value}"' if NAME.fullmatch(value) else repr(value)
    if isinstance(value, tuple):
        parts = ", ".join(map(literal, value))
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    if isinstance(value, frozenset):
        return (
            f"frozenset({{{', '.join(map(literal, sorted(value)))}}})" if value else "frozenset()"
        )
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    raise TypeError(f"there is no literal of {type(value).__name__}")


def assignment(name: str, value: Any) -> str:
    """`name = value`, an entry a line where one line is too short for all."""
    line = f"{name} = {literal(value)}"
    if len(line) <= WIDTH or not value or not isinstance(value, (tuple, Mapping)):
        return line
    if isinstance(value, Mapping):
        return _listed(
            f"{name} = {{", (f"{literal(k)}: {literal(v)}" for k, v in value.items()), "}"
        )
    return _listed(f"{name} = (", map(literal, value), ")")


def call(function: str, *first: str, **named: str) -> str:
    """A call with these arguments, each given as Python text."""
    parts = [*first, *(f"{name}={text}" for name, text in named.items())]
    line = f"{function}({', '.join(parts)})"
    return line if len(line) <= WIDTH - 20 else _listed(f"{function}(", parts, ")")


def entry(axes: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    """One dimension as a PartitionSpec takes it: None, one name, or a tuple of them."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else tuple(axes)


def entries(spec: Spec) -> tuple[str | tuple[str, ...] | None, ...]:
    """All dimensions as a PartitionSpec takes them."""
    return tuple(map(entry, spec or ()))


def _listed(head: str, parts: Iterable[str], tail: str) -> str:
    return "\n".join([head, *(f"    {part}," for part in parts), tail])
