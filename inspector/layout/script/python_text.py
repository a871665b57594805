"""Values and imports as Python text. All names of a layout end up inside quotes."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from inspector.core.sharding import jax_entry
from inspector.core.state_specs import Fsdp, SpecRow
from inspector.layout.fields import NAME
from inspector.layout.script.definitions import names_in

WIDTH = 100  # columns


def literal(value: Any) -> str:
    """Return a number, a text, None, or a tuple or mapping of them, on one line."""
    if isinstance(value, str):
        return f'"{value}"' if NAME.fullmatch(value) else repr(value)
    if isinstance(value, tuple):
        parts = ", ".join(map(literal, value))
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    if isinstance(value, Mapping):
        entries = (f"{literal(key)}: {literal(entry)}" for key, entry in value.items())
        return "{" + ", ".join(entries) + "}"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    raise TypeError(f"a {type(value).__name__} has no literal")


def assignment(name: str, value: Any) -> str:
    """Return `name = value`, with one entry per line if one line is too short."""
    line = f"{name} = {literal(value)}"
    if len(line) <= WIDTH or not value or not isinstance(value, tuple | dict):
        return line
    if isinstance(value, dict):
        entries = (f"{literal(key)}: {literal(entry)}" for key, entry in value.items())
        return _listed(f"{name} = {{", entries, "}")
    return _listed(f"{name} = (", map(literal, value), ")")


def call(function: str, arguments: Mapping[str, Any]) -> str:
    """Return a call with these keyword arguments."""
    parts = [f"{name}={literal(value)}" for name, value in arguments.items()]
    line = f"{function}({', '.join(parts)})"
    return line if len(line) <= WIDTH - 20 else _listed(f"{function}(", parts, ")")


def by_regex(rows: Iterable[SpecRow]) -> str:
    """Return `state_specs = by_regex([...])` with one row per line."""
    parts = []
    for row in rows:
        if isinstance(row.spec, Fsdp):
            spec = call("fsdp", {"axis": jax_entry(row.spec.axes), "min_bytes": row.spec.min_bytes})
        else:
            spec = literal(tuple(map(jax_entry, row.spec)))
        parts.append(f"({row.pattern!r}, {spec})")
    return _listed("state_specs = by_regex([", parts, "])")


def import_lines(statements: Mapping[str, str], body: str) -> str:
    """Return the imports of all names in `body`, sorted. `statements` are single imports by name."""
    used = names_in(body)
    needed = sorted({statement for name, statement in statements.items() if name in used})
    from_modules: dict[str, list[str]] = {}
    lines = []
    for statement in needed:
        module, _, name = statement.removeprefix("from ").partition(" import ")
        if not name or " as " in name:
            lines.append(statement)
        else:
            from_modules.setdefault(module, []).append(name)
    lines += [f"from {module} import {', '.join(names)}" for module, names in from_modules.items()]
    # `import X` comes before `from X import Y`, and each group is sorted by module.
    lines.sort(key=lambda line: (line.startswith("from"), line))
    standard = [line for line in lines if line.split()[1].partition(".")[0] in sys.stdlib_module_names]
    others = [line for line in lines if line not in standard]
    return "\n\n".join("\n".join(group) for group in (standard, others) if group)


def _listed(head: str, parts: Iterable[str], tail: str) -> str:
    return "\n".join([head, *(f"    {part}," for part in parts), tail])
