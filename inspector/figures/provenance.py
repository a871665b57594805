"""Where figures come from, in a line or two: model, mesh, rules, target, versions and date.

It stands on every picture that leaves the page, so that a picture without the page still says what it is of.
"""

from __future__ import annotations

from collections.abc import Sequence

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.core.formatting import counted, spec_text
from inspector.core.snapshot import Snapshot
from inspector.core.sources import SOURCES
from inspector.layout import Layout

UNKNOWN = "unknown"
_MOST_IDLE_AXES = 3  # more that split nothing are counted, not named


def facts(found: Snapshot) -> dict[str, str]:
    """What the figures of a Snapshot are of, by name, in the order in which it is said. Plain text."""
    layout = _layout(found)
    target = SOURCES[found.source.kind].made
    if found.source.kind in ("tpu", "gpu") and found.source.target:
        target = f"compiled for {found.source.target}, not run"
    versions = ", ".join(f"{name} {number}" for name, number in found.source.versions.items())
    return {
        "model": _model(layout),
        "mesh": _mesh(found),
        "rules": _rules(layout),
        "target": target,
        "versions": versions or UNKNOWN,
        "date": found.source.created[:16].replace("T", " ") or UNKNOWN,
    }


def line(found: Snapshot) -> str:
    """All facts of one Snapshot in one line."""
    return _joined(facts(found))


def lines(pins: Sequence[tuple[str, Snapshot]]) -> tuple[str, ...]:
    """The facts that all of these Snapshots share, then a line for each with its own; names before them."""
    if not pins:
        return ()
    found = {name: facts(one) for name, one in pins}
    first = next(iter(found.values()))
    shared = {
        key: text
        for key, text in first.items()
        if len(found) > 1 and all(other[key] == text for other in found.values())
    }
    own = [
        f"{name}: " + _joined({key: text for key, text in said.items() if key not in shared})
        for name, said in found.items()
        if len(shared) < len(said)
    ]
    return (*([_joined(shared)] if shared else []), *own)


def _joined(said: dict[str, str]) -> str:
    return " · ".join(
        f"{key} {text}" if key in ("rules", "mesh", "versions") or text == UNKNOWN else text
        for key, text in said.items()
    )


def _layout(found: Snapshot) -> Layout | None:
    try:
        return None if found.layout is None else layouts.from_json(found.layout)
    except InvalidInput:
        return None


def _model(layout: Layout | None) -> str:
    return UNKNOWN if layout is None else layout.entry.title


def _mesh(found: Snapshot) -> str:
    if found.mesh is None:
        return UNKNOWN
    idle = [axis for axis in found.mesh.axes if axis.size == 1]
    many = len(idle) > _MOST_IDLE_AXES
    axes = " × ".join(
        f"{axis.name} {axis.size}" for axis in found.mesh.axes if axis.size > 1 or not many
    )
    if many:
        axes = f"{axes} and {len(idle)} axes of size 1" if axes else f"{len(idle)} axes of size 1"
    kind = found.mesh.device_kind
    on = "" if kind in (None, "cpu") else f" of {kind}"
    return f"{axes or 'without axes'} ({counted(found.mesh.size, 'device')}{on})"


def _rules(layout: Layout | None) -> str:
    if layout is None:
        return UNKNOWN
    if layout.entry.has_rules:
        said = (f"{name} → {' + '.join(axes) or 'none'}" for name, axes in layout.rules)
    else:
        said = (f"{place} {spec_text(spec)}" for place, spec in layout.specs.items())
    return ", ".join(said) or "none"
