"""The subject: the model with its size, the machine, the number of parameters and the sizes that differ.

Titles of pages, the verdict and the second line of each report are made here. So is the source of a Snapshot
in a line or two, which every picture that leaves the page has: model, mesh, rules, target, versions and
date.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence

from inspector.compare import origin
from inspector.files.sources import SOURCES
from inspector.layout import Layout, layout_of, print_row_spec
from inspector.layout.fields import TRAINING_SIZES, WORK_SIZES
from inspector.machines import targets
from inspector.machines.hardware import Chip
from inspector.model import SizePreset, SizeValue
from inspector.records.snapshot import Mesh, Snapshot, Source
from inspector.sharding.meshes import devices_of, meshes_text, number_of_devices
from inspector.sharding.sharding_text import mesh_text, spec_text
from inspector.text.formatting import counted, parameters_text

Named = Sequence[tuple[str, Snapshot]]

UNKNOWN = "unknown"
_MOST_SIZES = 8
# Sizes that a model has with other values, and is still the same model.
_NOT_OF_MODEL = {*TRAINING_SIZES, *WORK_SIZES, "scan"}


def title(named: Named, chip: Chip | None = None, *, with_mesh: bool = False) -> str:
    """Return the model and the machine that all layouts share: `Llama-3-8B, 2 slices of v5e 4×4`.

    A recorded program has the name of its file.

    Args:
      chip: the chip of Snapshots without one.
      with_mesh: whether the mesh is named between model and machine.
    """
    models = _shared(model(snapshot) for _, snapshot in named)
    said = models or ("Different models" if len(named) > 1 else "Snapshot")
    mesh = _shared(_mesh_text(snapshot) for _, snapshot in named)
    if mesh and with_mesh:
        said += f" on {mesh}"
    machine = _shared(machine_text(snapshot, chip) for _, snapshot in named)
    return f"{said}, {machine}" if machine else said


def details(named: Named) -> str:
    """Return what `title` leaves out and all layouts share: parameters, sizes that differ, how it was made.

    The parts are joined by ` · `. The result is empty if the layouts share nothing.
    """
    facts = (
        (of_model(snapshot) for _, snapshot in named),
        (mesh_if_known(snapshot) for _, snapshot in named),
        (made(snapshot) for _, snapshot in named),
    )
    return " · ".join(filter(None, map(_shared, facts)))


def line(named: Named, chip: Chip | None = None) -> str:
    """Return title and details in one line."""
    return " · ".join(filter(None, (title(named, chip), details(named))))


def model(snapshot: Snapshot) -> str:
    """Return the name of the model with its size, else that of the recorded file; "" if both are unknown."""
    layout = layout_of(snapshot)
    if layout is None:
        return snapshot.source.file or ""
    return model_name(layout)


def of_model(snapshot: Snapshot) -> str:
    """Return the number of parameters and the sizes that differ: `8.03B parameters · batch 32`, or ""."""
    sizes = changed_sizes(layout_of(snapshot))
    name = "trained parameter" if origin.trains_some(snapshot) else "parameter"
    count = parameters_text(origin.parameters(snapshot), name)
    more = name == "parameter" and origin.can_have_more(snapshot)
    if count and snapshot.layout is None and (more or origin.takes_other_weights(snapshot)):
        count = f"at least {count}"
    return " · ".join(filter(None, (count, sizes)))


def model_name(layout: Layout) -> str:
    """Return the model of a layout: `Llama-3-8B`, `Transformer 125M`, or its title if no size has a name."""
    entry = layout.entry
    preset = preset_of(layout)
    if preset is None:
        return entry.title
    return preset.name if preset.name[:1].isalpha() else f"{entry.title} {preset.name}"


def preset_of(layout: Layout) -> SizePreset | None:
    """Return the published model whose sizes a layout has, whatever its batch and its training are."""
    entry, defaults = layout.entry, _defaults(layout)
    for preset in entry.presets:
        own = {name: size for name, size in entry.sizes_of(preset).items() if name not in _NOT_OF_MODEL}
        is_default = all(defaults[name] == size for name, size in own.items())
        if not is_default and all(layout.sizes.get(name) == size for name, size in own.items()):
            return preset
    return None


def changed_sizes(layout: Layout | None) -> str:
    """Return the sizes that are not those of the published model or the defaults: `batch 32, seq 1024`."""
    if layout is None:
        return ""
    preset = preset_of(layout)
    usual = _defaults(layout) if preset is None else layout.entry.sizes_of(preset)
    changed = [_size_text(*size) for size in layout.sizes.items() if size[1] != usual.get(size[0])]
    if len(changed) > _MOST_SIZES:
        changed[_MOST_SIZES - 1 :] = [f"{len(changed) - _MOST_SIZES + 1} more sizes changed"]
    return ", ".join(changed)


def _size_text(name: str, value: SizeValue) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"


def machine_text(snapshot: Snapshot, chip: Chip | None = None) -> str:
    """Return the machine in words: `2 slices of v5e 4×4`, `8 emulated devices`; "" if it is unknown."""
    layout = layout_of(snapshot)
    target = targets.compiled_for(snapshot) or (None if layout is None else layout.machine)
    if target is not None:
        return target.title
    devices, own = devices_of(snapshot), targets.chip_of(snapshot)
    if own is not None:
        return f"{devices} of {own.title}" if devices else own.title
    return ", ".join(filter(None, (devices, f"predicted for {chip.title}" if chip else "")))


def made(snapshot: Snapshot) -> str:
    """Return how a Snapshot was made: `planned, nothing compiled`."""
    if snapshot.source.kind in targets.KINDS and snapshot.source.target:
        return f"compiled for {snapshot.source.target}, not run"
    return SOURCES[snapshot.source.kind].made


def mesh_if_known(snapshot: Snapshot) -> str:
    """Return all meshes with their axes: `data 2 × model 4`; "" if they are unknown."""
    named = "" if snapshot.other_meshes else "mesh "
    return "" if snapshot.mesh is None else f"{named}{meshes_text(snapshot)}"


def _mesh_text(snapshot: Snapshot) -> str:
    if snapshot.other_meshes:
        return f"{len(snapshot.meshes)} meshes"
    return "" if snapshot.mesh is None else mesh_text(snapshot.mesh)


def _defaults(layout: Layout) -> dict[str, object]:
    return {size.name: size.default for size in layout.entry.sizes}


def _shared(values: Iterable[str]) -> str:
    """Return the value that all have; "" if they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else ""


def source_facts(snapshot: Snapshot) -> dict[str, str]:
    """Return the facts about the source of a Snapshot by name, in their order, as plain text."""
    layout = layout_of(snapshot)
    versions = ", ".join(f"{name} {number}" for name, number in snapshot.source.versions.items())
    return {
        "model": model(snapshot) or UNKNOWN,
        "mesh": _mesh(snapshot),
        "rules": _rules(layout),
        "target": made(snapshot),
        "versions": versions or UNKNOWN,
        "date": snapshot.source.created[:16].replace("T", " ") or UNKNOWN,
    }


def source_line(snapshot: Snapshot) -> str:
    """Return all facts of one Snapshot in one line."""
    return _joined(source_facts(snapshot))


def source_line_of_arrays(
    made: Iterable[str], mesh: Mesh, versions: Mapping[str, str], processes: int = 1
) -> str:
    """Return one line about arrays without a model: how they were made, mesh, versions and date.

    Args:
      made: the arrays and how they were made, a few words each.
      mesh: a mesh of emulated devices.
      versions: the versions of the packages that made them, by name.
      processes: the number of real processes that made them.
    """
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    source = Source("cpu", "cpu", created, dict(versions), processes=processes)
    known = source_facts(Snapshot(source=source, layout=None, mesh=mesh, arrays=()))
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


def source_lines(pins: Sequence[tuple[str, Snapshot]]) -> tuple[str, ...]:
    """Return a line with the shared facts, then a line for each named Snapshot with the others."""
    if not pins:
        return ()
    facts_by_pin = {name: source_facts(snapshot) for name, snapshot in pins}
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
