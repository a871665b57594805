"""The guide that saves a train state under one layout and restores it under another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from inspector import layout as layouts
from inspector.core import snapshot
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text, counted, mesh_sizes_text, seconds_text
from inspector.core.printable import one_line
from inspector.core.snapshot import Snapshot, Transfer
from inspector.core.totals import state_totals
from inspector.figures.device_grid import transfer_map
from inspector.guides.restore import transfer
from inspector.layout import Layout, mesh_fields, presets
from inspector.layout.presets import Preset
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, guide_form, preset_pills, table
from inspector.media.streamlit.parts.guide_form import Fields
from inspector.media.streamlit.session import asked, current_layout, planning, user
from inspector.sections import provenance
from inspector.service import inspection
from inspector.service.engine import Status
from inspector.service.request import Progress, Request
from inspector.service.restoration import Restoration

ALL_ARRAYS = "All arrays"
# Fields that place the arrays on the mesh, of which a layout has one, and how they are written.
_PLACEMENT = {
    "rules": "`logical axis=mesh axis`, joined by commas; several mesh axes are joined by +.",
    "specs": "`place=spec`, joined by commas, with a point between dimensions: `W1=None.model`.",
    "state_specs": "`pattern=spec`, joined by semicolons: `kernel=None.model;.*=fsdp(data)`.",
}
# Phases of the two jobs, in order.
PHASES = {
    "save queued": "Waiting for a worker",
    "save start": "Starting a worker for the saved layout",
    "save build": "Building the model",
    "save compile": "Compiling one train step",
    "save train": "Training one step",
    "save save": "Saving with Orbax",
    "save values": "Copying the values for the comparison",
    "restore queued": "Waiting for a worker",
    "restore start": "Starting a worker for the new layout",
    "restore build": "Building the model",
    "restore restore": "Restoring with Orbax",
    "restore compare": "Comparing every value",
}
_JOB = "restore"


def show() -> None:
    """Draw the page: both layouts, the run and its verdict, and the bytes that move."""
    service = user.service()
    saved = current_layout.last_layout()
    st.markdown("### Restore and transfer")
    left, right = st.columns([2, 3], gap="large")
    with right:
        new = _draw_new_layout(saved)
    with left:
        saved_plan = planning.planned(service, saved)
        if saved_plan is not None:
            _draw_saved_layout(saved, saved_plan)
    if new is None or saved_plan is None:
        return
    new_plan = planning.planned(service, new)
    if new_plan is None:
        return
    try:
        for plan in (saved_plan, new_plan):
            inspection.refuse_indivisible(plan)
        planned = transfer.transfer(saved_plan, new_plan)
    except InvalidInput as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    right.caption(_state_text(new, new_plan))
    request = service.restoration(saved, new, saved_plan, new_plan)
    request = replace(request, describe=_progress)
    with st.container():
        _draw_run(request, (saved.devices, new.devices))
    restoration = asked.of(_JOB).ask(request, start=False).result
    if restoration is None:
        _draw_transfer(planned, None, saved_plan, new_plan)
    else:
        _draw_verdict(restoration, saved, new)
        _draw_transfer(_restored(restoration), restoration, restoration.saved, restoration.snapshot)


# --- The two layouts ------------------------------------------------------------------------------


def _draw_saved_layout(layout: Layout, planned: Snapshot) -> None:
    fields = layouts.to_fields(layout)
    rules = fields.get(_last_field(layout), "").replace(",", ", ").replace(";", "; ") or "no rules"
    mesh = mesh_sizes_text(layout.axis_names, layout.mesh_shape)
    st.markdown(
        "**Saved layout** &ensp; :small[from the Layout page]\n\n"
        f"{plain(layout.entry.title)} on **{plain(mesh)}**  \n"
        f":small[{plain(rules.replace('=', ' → '))}]"
    )
    st.caption(_state_text(layout, planned))


def _state_text(layout: Layout, planned: Snapshot) -> str:
    totals = state_totals(planned)
    return (
        f"{counted(layout.devices, 'device')}, train state {bytes_text(totals.bytes)}, "
        f"{bytes_text(totals.per_device)} per device."
    )


def _draw_new_layout(saved: Layout) -> Layout | None:
    """Draw the fields of the new layout. Return None if a field is wrong."""
    st.markdown("**New layout**")
    last = _last_field(saved)
    fields = Fields("restore", _three_fields(suggested(saved)))
    parsed = layouts.parse(_texts(saved, fields))
    _draw_presets(saved, fields)
    left, middle = st.columns([2, 3])
    help = "Sizes of the mesh axes joined by x. The number of devices can differ."
    fields.draw_mesh(left.text_input, "New mesh", _change_mesh, help, saved)
    fields.draw(middle.text_input, "axes", "New axis names", help=guide_form.AXIS_NAMES_HELP)
    label = "New rules" if last == "rules" else "New PartitionSpecs"
    fields.draw(st.text_input, last, label, help=_PLACEMENT[last])
    for problem in parsed.problems.values():
        st.markdown(f":red[:material/error: :small[{plain(problem)}]]")
    return parsed.value


def _draw_presets(saved: Layout, fields: Fields) -> None:
    now = layouts.parse_leniently(_texts(saved, fields)).unwrap()
    current = presets.matching(now)

    def apply(preset: Preset) -> None:
        for name, text in _three_fields(preset.applied_to(now)).items():
            fields[name] = text

    selected, fitting = current.name if current else None, presets.fitting(now.entry)
    preset_pills.draw("Preset", fields.key("preset"), fitting, selected, apply)


def _change_mesh(saved: Layout, fields: Fields) -> None:
    try:
        rank = len(layouts.parse_mesh(fields["mesh"]))
    except InvalidInput:
        return
    if len(fields["axes"].split(",")) != rank:
        spare = (*saved.axis_names, *layouts.default_names(layouts.MOST_AXES))
        fields["axes"] = ", ".join(mesh_fields.fitted_names(fields["axes"], rank, spare))


def suggested(saved: Layout) -> Layout:
    """Return an example of a new layout: the reversed mesh, or half of the devices."""
    shape = saved.mesh_shape[::-1]
    if shape == saved.mesh_shape:
        even = next((place for place, size in enumerate(shape) if size % 2 == 0), None)
        shape = tuple(size // 2 if place == even else size for place, size in enumerate(shape))
    fields = layouts.to_fields(saved) | {"mesh": layouts.print_mesh(shape)}
    return layouts.parse(fields).unwrap()


def _last_field(saved: Layout) -> str:
    if saved.entry.state_specs is not None:
        return "state_specs"
    return "rules" if saved.entry.has_rules else "specs"


def _texts(saved: Layout, fields: Fields) -> dict[str, str]:
    """Return the fields of the saved layout with the typed ones: both layouts have one model."""
    return layouts.to_fields(saved) | {name: fields[name] for name in ("mesh", "axes", _last_field(saved))}


def _three_fields(layout: Layout) -> dict[str, str]:
    names, fields = ("mesh", "axes", *_PLACEMENT), layouts.to_fields(layout)
    return {name: fields[name].replace(",", ", ") for name in names if name in fields}


# --- The run --------------------------------------------------------------------------------------


def _draw_run(request: Request[Restoration], devices: tuple[int, int]) -> None:
    """devices: the number of devices that save, and that restore."""
    if asked.show_progress(_JOB, request):
        return
    button, note = st.columns([1, 3], vertical_alignment="center")
    done = asked.of(_JOB).ask(request, start=False).result is not None
    if button.button(
        "Restore again" if done else "Save and restore",
        key="restore_button",
        type="secondary" if done else "primary",
        icon=":material/swap_horiz:",
        width="stretch",
    ):
        asked.of(_JOB).again(request)
        st.rerun()
    note.caption(
        f"Trains one step on {counted(devices[0], 'emulated device')}, saves with Orbax, restores on "
        f"{devices[1]:,} in another process, and compares every value. The checkpoint is deleted."
    )
    asked.show_failure(_JOB, request.key)


def _progress(status: Status) -> Progress:
    """Return the progress. All phases count equally because their times are unknown."""
    phase = status.phase if status.phase in PHASES else next(iter(PHASES))
    label, figures = PHASES[phase], status.progress
    if "place" in figures:
        label += f", place {figures['place']} in the queue"
    done, of = figures.get("done", 0), figures.get("of", 0)
    if of:
        label += f", array {done + 1} of {of}"
    return Progress(label, (list(PHASES).index(phase) + (done / of if of else 0.0)) / len(PHASES))


# --- The result -----------------------------------------------------------------------------------


def _restored(restoration: Restoration) -> Transfer:
    assert restoration.snapshot.transfer is not None, "a restoration has moved its state"
    return restoration.snapshot.transfer


def _draw_verdict(done: Restoration, saved: Layout, new: Layout) -> None:
    restored = _restored(done)
    change = " → ".join("×".join(map(str, layout.mesh_shape)) for layout in (saved, new))
    text = plain(transfer.verdict(restored, change))
    if all(row.unequal == 0 for row in restored.arrays):
        st.success(text, icon=":material/verified:")
    else:
        st.error(text, icon=":material/error:")
    for finding in done.snapshot.findings:
        st.error(plain(finding.message), icon=":material/error:")
    st.caption(
        f"Orbax wrote {bytes_text(done.file_bytes)} in {seconds_text(done.seconds_saving)} "
        f"and read them in {seconds_text(done.seconds_restoring)}, measured on the disk of this machine."
    )


def _draw_transfer(moved: Transfer, done: Restoration | None, before: Snapshot, after: Snapshot) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if done is None:
            st.badge("Planned: nothing run", icon=":material/architecture:", color="blue")
        else:
            st.badge("Restored: read from live arrays", icon=":material/memory:", color="green")
            guide_form.download_snapshot("download_restored", "restored.json", done.snapshot)
    totals = transfer.totals(moved)
    metrics = {
        "Bytes to move": bytes_text(totals.moved),
        "Bytes that stay": bytes_text(totals.kept),
        "Sending devices": f"{totals.senders:,}",
        "Receiving devices": f"{totals.receivers:,}",
    }
    for column, (label, value) in zip(st.columns(4), metrics.items(), strict=True):
        column.metric(label, value)
    with chart.of(lambda: provenance.lines((("Saved", before), ("Restored", after)))):
        _draw_map(moved, before, after)
    st.caption(
        "The minimum that must move, computed from both layouts. Orbax does not send these bytes: it writes "
        "and reads files. A part that a device lacks comes from the device that held replica 0."
    )
    table.show(
        columns(moved),
        "transfer_table",
        texts=dict.fromkeys(("One copy", "On all devices", "To move", "Stays"), bytes_text),
        column_config={
            "Moves": st.column_config.ProgressColumn(
                format="percent",
                min_value=0,
                max_value=1,
                help="Share of the bytes on all devices.",
            ),
        },
    )


def _draw_map(moved: Transfer, before: Snapshot, after: Snapshot) -> None:
    """Draw the bytes between devices, of all arrays or of the selected one."""
    paths = [row.path for row in moved.arrays]
    if st.session_state.get("restore_array") not in paths:
        st.session_state["restore_array"] = ALL_ARRAYS
    path = st.selectbox("Array", [ALL_ARRAYS, *paths], format_func=one_line, key="restore_array")
    title, parts = "Bytes from device to device", None
    if path != ALL_ARRAYS:
        title = f"{path}: bytes from device to device"
        moved = transfer.of_array(before, after, path)
        parts = transfer.parts(before, after, path)
    chart.draw(
        transfer_map(moved, title=title, parts=parts, width_px=1000),
        "transfer_map",
        alt=f"Bytes from device to device, {path}",
    )
    st.markdown(plain(transfer.in_words(moved)))


def columns(moved: Transfer) -> dict[str, list[Any]]:
    """Return the columns of the table, one row per array. Bytes are numbers, so they sort."""
    rows = moved.arrays
    by_name: dict[str, list[Any]] = {
        "Path": [row.path for row in rows],
        "One copy": [row.bytes for row in rows],
        "On all devices": [row.kept + row.moved for row in rows],
        "To move": [row.moved for row in rows],
        "Stays": [row.kept for row in rows],
        "Moves": [row.moved / ((row.kept + row.moved) or 1) for row in rows],
    }
    if any(row.unequal is not None for row in rows):
        by_name["Values"] = [_values(row) for row in rows]
    return by_name


def _values(row: snapshot.ArrayTransfer) -> str:
    if row.unequal is None:
        return "not compared"
    return f"{row.unequal:,} of {row.elements:,} differ" if row.unequal else "equal"
