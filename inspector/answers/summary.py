"""The summary of a Snapshot: source, model, mesh, versions, and the size of the train state."""

from typing import Any

from inspector.answers import subject
from inspector.answers.section import Facts, Text, text
from inspector.records.snapshot import Snapshot
from inspector.sharding.meshes import devices_of, meshes_text, number_of_devices
from inspector.sharding.totals import Totals, counted_program, in_elements, state_title, state_totals
from inspector.text.formatting import bytes_text, counted, elements_text, times_text
from inspector.text.program_names import noun

_PER_DEVICE = " per device"  # memory also holds batch, outputs and temporaries
_ELEMENTS_PER_DEVICE = "Elements per device"
_TITLES = {"target": "Source", "date": "Created"}


def facts(snapshot: Snapshot) -> Facts:
    """Return the source of the Snapshot and the size of its train state."""
    known = subject.source_facts(snapshot)
    first = ("target", "model", "mesh")
    ordered = {key: known[key] for key in (*first, *known)}
    labelled = [(_TITLES.get(key, key.capitalize()), value) for key, value in ordered.items()]
    if snapshot.layout is not None:
        labelled.append(("Layout", layout_text(snapshot.layout)))
    if snapshot.source.processes > 1:
        labelled.append(("Processes", str(snapshot.source.processes)))
    size = state_text(state_totals(snapshot), device_count(snapshot))
    labelled.append((state_title(snapshot), size))
    return Facts.of(*labelled)


def totals(snapshot: Snapshot) -> Facts:
    """Return devices, the train state once and per device, and its copies."""
    elements = in_elements(snapshot)  # a file without types has elements instead of bytes
    state = state_totals(elements or snapshot)
    devices = device_count(snapshot)
    once, per_device = bytes_text(state.bytes), bytes_text(state.per_device)
    title = state_title(snapshot)
    labels, unit = (title, f"{title}{_PER_DEVICE}"), "Bytes"
    if elements is not None:
        once, per_device = (
            elements_text(count).partition(" element")[0] for count in (state.bytes, state.per_device)
        )
        labels, unit = ("Elements", _ELEMENTS_PER_DEVICE), "Elements"
    on_host = f" {bytes_text(state.host)} more are in host memory." if state.host else ""
    ends = "" if devices is None else f" 1 means no replication, {devices} means full replication."
    program = counted_program(snapshot)
    of_program = "" if program is None else f" Of {noun(program)}, which has the most."
    return Facts.of(
        ("Devices", "unknown" if devices is None else f"{devices:,}"),
        (labels[0], once, f"All of them, counted once.{of_program}"),
        (labels[1], per_device, f"In the memory of each device.{on_host}"),
        (
            "Copies",
            "unknown" if state.copies is None else f"{times_text(state.copies)}×",
            f"{unit} on all devices over those counted once.{ends}",
        ),
    )


def line(snapshot: Snapshot, state_per_device: str | None = None) -> Text:
    """Return the facts of `totals` in one line: `8 devices · Train state 96 MiB, per device 24 MiB`.

    state_per_device: the bytes per device if they are to have other words, such as before and now.
    """
    _, once, per_device, _ = totals(snapshot).facts
    copies = state_totals(in_elements(snapshot) or snapshot).copies
    count = device_count(snapshot)
    devices = devices_of(snapshot) or ("" if count is None else counted(count, "device"))
    if state_per_device is None or per_device.label == _ELEMENTS_PER_DEVICE:
        state_per_device = per_device.value
    sizes = f"{once.label} {once.value}, per device {state_per_device}"
    if copies is not None and (number := times_text(copies)) != "1":
        sizes += f", {number} copies"
    return text(" · ".join(filter(None, [devices, sizes])), quiet=True)


def device_count(snapshot: Snapshot) -> int | None:
    """Return the devices of all meshes, else those of all programs, or None if these differ."""
    if snapshot.mesh is not None:
        return number_of_devices(snapshot)
    counts = {program.devices for program in snapshot.programs}
    return counts.pop() if len(counts) == 1 else None


def mesh_text(snapshot: Snapshot) -> str:
    """Return the mesh in short, such as `fsdp 16, and 11 axes of size 1`."""
    programs = f"{counted(len(snapshot.programs), 'program')}, " if snapshot.programs else ""
    if snapshot.mesh is None:
        return f"{programs}mesh unknown"
    return programs + meshes_text(snapshot, max_axes_of_size_1=0)


def state_text(state: Totals, devices: int | None) -> str:
    """Return `96.0 MiB once, 24.0 MiB on each device, 2 copies, in 26 arrays`.

    If devices hold different amounts, the bytes are those of the device with the most.
    """
    if not state.arrays:
        return "no arrays"
    arrays = counted(state.arrays, "array")
    if state.bytes is None and state.per_device is None:
        return f"{arrays}, bytes unknown"
    copies = "copies unknown"
    if state.copies is not None:
        number = times_text(state.copies)
        copies = f"{number} {'copy' if number == '1' else 'copies'}"
    alike = state.per_device is None or state.everywhere == state.per_device * (devices or 0)
    where = "on each device" if alike else "on the device with the most"
    sizes = f"{bytes_text(state.bytes)} once, {bytes_text(state.per_device)} {where}"
    host = f", {bytes_text(state.host)} per device in host memory" if state.host else ""
    return f"{sizes}{host}, {copies}, in {arrays}"


def layout_text(layout: dict[str, Any]) -> str:
    """Return the fields of a layout. The file may come from elsewhere, so any JSON is accepted."""
    words = []
    for name, value in layout.items():
        if name == "rules" and isinstance(value, list):
            value = ",".join(
                f"{rule[0]}={'+'.join(rule[1])}" if _is_rule(rule) else str(rule) for rule in value
            )
        elif name == "state_specs" and isinstance(value, list):
            value = ";".join(map(_row_text, value))
        elif isinstance(value, dict):
            value = " ".join(f"{key}={part}" for key, part in value.items())
        elif isinstance(value, list):
            value = ",".join(map(str, value))
        words.append(f"{name} {value}")
    return "; ".join(words)


def _row_text(row: object) -> str:
    if not isinstance(row, list) or len(row) != 2:
        return str(row)
    pattern, spec = row
    if isinstance(spec, list):
        each = ("+".join(map(str, axes)) if isinstance(axes, list) else str(axes) for axes in spec)
        spec = ".".join(each)
    return f"{pattern}={spec}"


def _is_rule(rule: object) -> bool:
    return (
        isinstance(rule, list)
        and len(rule) == 2
        and isinstance(rule[0], str)
        and isinstance(rule[1], list)
        and all(isinstance(axis, str) for axis in rule[1])
    )
