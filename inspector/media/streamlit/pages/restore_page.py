"""The guide to the bytes that move when a train state changes its layout."""

from typing import Any

import streamlit as st

from inspector import layout as layouts
from inspector.answers import subject
from inspector.figures.device_grid import transfer_map
from inspector.guides import transfer
from inspector.guides.transfer import Transfer
from inspector.jobs import inspection
from inspector.layout import Layout, mesh_shapes, presets
from inspector.layout.presets import Preset
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, guide_form, table
from inspector.media.streamlit.parts.guide_form import FormFields
from inspector.media.streamlit.session import current_layout, kept_field, planning, user
from inspector.records.snapshot import Snapshot
from inspector.sharding.totals import state_totals
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text, counted, mesh_sizes_text
from inspector.text.printable import one_line

ALL_ARRAYS = "All arrays"
# Fields that place the arrays on the mesh, of which a layout has one, and how they are written.
_PLACEMENT = {
    "rules": "`logical axis=mesh axis`, joined by commas; several mesh axes are joined by +.",
    "specs": "`place=spec`, joined by commas, with a point between dimensions: `W1=None.model`.",
    "state_specs": "`pattern=spec`, joined by semicolons: `kernel=None.model;.*=fsdp(data)`.",
}


def show() -> None:
    """Draw the page: both layouts, and the bytes that move."""
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
    _draw_transfer(planned, saved_plan, new_plan)


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
    fields = FormFields("restore", _three_fields(suggested(saved)))
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


def _draw_presets(saved: Layout, fields: FormFields) -> None:
    now = layouts.parse_leniently(_texts(saved, fields)).unwrap()
    current = presets.matching(now)

    def apply(preset: Preset) -> None:
        for name, text in _three_fields(preset.applied_to(now)).items():
            fields[name] = text

    selected, fitting = current.name if current else None, presets.fitting(now.entry)
    kept_field.draw_presets("Preset", fields.key("preset"), fitting, selected, apply)


def _change_mesh(saved: Layout, fields: FormFields) -> None:
    try:
        rank = len(layouts.parse_mesh(fields["mesh"]))
    except InvalidInput:
        return
    if len(fields["axes"].split(",")) != rank:
        spare = (*saved.axis_names, *layouts.default_names(layouts.MOST_AXES))
        fields["axes"] = ", ".join(mesh_shapes.fitted_names(fields["axes"], rank, spare))


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


def _texts(saved: Layout, fields: FormFields) -> dict[str, str]:
    """Return the fields of the saved layout with the typed ones: both layouts have one model."""
    return layouts.to_fields(saved) | {name: fields[name] for name in ("mesh", "axes", _last_field(saved))}


def _three_fields(layout: Layout) -> dict[str, str]:
    names, fields = ("mesh", "axes", *_PLACEMENT), layouts.to_fields(layout)
    return {name: fields[name].replace(",", ", ") for name in names if name in fields}


# --- The bytes that move -------------------------------------------------------------------------


def _draw_transfer(moved: Transfer, before: Snapshot, after: Snapshot) -> None:
    totals = transfer.totals(moved)
    metrics = {
        "Bytes to move": bytes_text(totals.moved),
        "Bytes that stay": bytes_text(totals.kept),
        "Sending devices": f"{totals.senders:,}",
        "Receiving devices": f"{totals.receivers:,}",
    }
    for column, (label, value) in zip(st.columns(4), metrics.items(), strict=True):
        column.metric(label, value)
    with chart.of(lambda: subject.source_lines((("Saved", before), ("New", after)))):
        _draw_map(moved, before, after)
    st.caption(
        "The minimum that must move, computed from both layouts. Nothing runs. A part that a device lacks "
        "comes from the device that held replica 0. A restore from a checkpoint reads files instead."
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
    return {
        "Path": [row.path for row in rows],
        "One copy": [row.bytes for row in rows],
        "On all devices": [row.kept + row.moved for row in rows],
        "To move": [row.moved for row in rows],
        "Stays": [row.kept for row in rows],
        "Moves": [row.moved / ((row.kept + row.moved) or 1) for row in rows],
    }
