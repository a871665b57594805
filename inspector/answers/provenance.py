"""The source of a Snapshot in a line or two: model, mesh, rules, target, versions and date.

Every picture that leaves the page has these lines.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence

from inspector.answers import subject
from inspector.answers.subject import UNKNOWN
from inspector.layout import Layout, layout_of, print_row_spec
from inspector.records.snapshot import Mesh, Snapshot, Source
from inspector.sharding.meshes import meshes_text, number_of_devices
from inspector.sharding.sharding_text import spec_text
from inspector.text.formatting import counted


def facts(snapshot: Snapshot) -> dict[str, str]:
    """Return the facts about the source of a Snapshot by name, in their order, as plain text."""
    layout = layout_of(snapshot)
    versions = ", ".join(f"{name} {number}" for name, number in snapshot.source.versions.items())
    return {
        "model": subject.model(snapshot) or UNKNOWN,
        "mesh": _mesh(snapshot),
        "rules": _rules(layout),
        "target": subject.made(snapshot),
        "versions": versions or UNKNOWN,
        "date": snapshot.source.created[:16].replace("T", " ") or UNKNOWN,
    }


def line(snapshot: Snapshot) -> str:
    """Return all facts of one Snapshot in one line."""
    return _joined(facts(snapshot))


def line_of_arrays(made: Iterable[str], mesh: Mesh, versions: Mapping[str, str], processes: int = 1) -> str:
    """Return one line about arrays without a model: how they were made, mesh, versions and date.

    Args:
      made: the arrays and how they were made, a few words each.
      mesh: a mesh of emulated devices.
      versions: the versions of the packages that made them, by name.
      processes: the number of real processes that made them.
    """
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    source = Source("cpu", "cpu", created, dict(versions), processes=processes)
    known = facts(Snapshot(source=source, layout=None, mesh=mesh, arrays=()))
    within = f" of {processes} processes" if processes > 1 else ""
    # Cached results do not record when they were made, so the date is that of the picture.
    return " · ".join(
        [
            *made,
            f"mesh {known['mesh']}",
            known["target"] + within,
            f"versions {known['versions']}",
            f"drawn {known['date']}",
        ]
    )


def lines(pins: Sequence[tuple[str, Snapshot]]) -> tuple[str, ...]:
    """Return a line with the shared facts, then a line for each named Snapshot with the others."""
    if not pins:
        return ()
    facts_by_pin = {name: facts(snapshot) for name, snapshot in pins}
    first = next(iter(facts_by_pin.values()))
    shared = {
        key: text
        for key, text in first.items()
        if len(facts_by_pin) > 1 and all(other[key] == text for other in facts_by_pin.values())
    }
    own = [
        f"{name}: " + _joined({key: text for key, text in said.items() if key not in shared})
        for name, said in facts_by_pin.items()
        if len(shared) < len(said)
    ]
    return (*([_joined(shared)] if shared else []), *own)


def _joined(facts: dict[str, str]) -> str:
    return " · ".join(
        f"{key} {text}" if key in ("rules", "mesh", "versions") or text == UNKNOWN else text
        for key, text in facts.items()
    )


def _mesh(snapshot: Snapshot) -> str:
    if snapshot.mesh is None:
        return UNKNOWN
    axes = meshes_text(snapshot)
    kind = snapshot.mesh.device_kind
    on = "" if kind in (None, "cpu") else f" of {kind}"
    return f"{axes} ({counted(number_of_devices(snapshot) or 0, 'device')}{on})"


def _rules(layout: Layout | None) -> str:
    if layout is None:
        return UNKNOWN
    rows = [f"{row.pattern} → {print_row_spec(row.spec) or 'none'}" for row in layout.state_specs]
    if layout.entry.has_rules:
        said = [f"{name} → {' + '.join(axes) or 'none'}" for name, axes in layout.rules]
    else:
        said = [f"{place} {spec_text(spec)}" for place, spec in layout.specs.items()]
    return ", ".join(said + rows) or "none"
