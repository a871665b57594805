"""The page where a train state is saved under one layout and restored under another."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from inspector import layout as layouts
from inspector.core import snapshot
from inspector.core.errors import InvalidInput
from inspector.core.formatting import bytes_text, counted, seconds_text
from inspector.core.snapshot import Snapshot, Transfer
from inspector.core.totals import state_totals
from inspector.figures import provenance
from inspector.figures.transfer_map import transfer_map
from inspector.guides.restore import transfer
from inspector.guides.restore.restoration import Moment, Outcome, Restoration
from inspector.layout import Layout, presets
from inspector.media.streamlit import chart, planning, session, table
from inspector.media.streamlit.plain_text import plain
from inspector.service import inspection
from inspector.service.inspection import Inspection

POLL_SECONDS = 0.5  # below 0.3 s a rerun can swallow a click on Cancel
REMEMBERED_OUTCOMES = 4

ALL_ARRAYS = "All arrays"
FIELDS = ("mesh", "axes", "rules", "specs")
# What the two workers report, in the order in which it happens.
PHASES = {
    ("save", "start"): "Starting a worker with the devices of the saved layout",
    ("save", "build"): "Building the model",
    ("save", "compile"): "Compiling one train step",
    ("save", "train"): "Training one step",
    ("save", "save"): "Saving with Orbax",
    ("save", "values"): "Keeping the plain values to compare with",
    ("restore", "start"): "Starting a worker with the devices of the new layout",
    ("restore", "build"): "Building the model",
    ("restore", "restore"): "Restoring with Orbax",
    ("restore", "compare"): "Comparing every value",
}


@dataclass(eq=False)
class Underway:
    """A restoration of this session."""

    restoration: Restoration


def show() -> None:
    """Draw the page: both layouts side by side, the run, what came of it, and the bytes that move."""
    service = inspection.shared()
    saved = session.last_layout()
    st.markdown("### Save under one layout, restore under another")
    left, right = st.columns([2, 3], gap="large")
    with right:
        new = _draw_new_layout(saved)
    with left:
        saved_plan = planning.planned(service, saved)
        if saved_plan is not None:
            _draw_layout("Saved under", saved, saved_plan)
            st.caption("The layout of the Layout page; change it there.")
    if new is None or saved_plan is None:
        st.info("With both layouts right, the bytes that move stand here at once.")
        return
    new_plan = planning.planned(service, new)
    if new_plan is None:
        return
    try:
        for one in (saved_plan, new_plan):
            inspection.refuse_indivisible(one)
        planned = transfer.transfer(saved_plan, new_plan)
    except InvalidInput as refused:
        st.error(plain(str(refused)), icon=":material/error:")
        return
    with right:
        st.caption(_held(new, new_plan))
    with st.container():
        _draw_run(service, saved, new, saved_plan, new_plan)
    outcome = _outcomes().get(_key(saved, new))
    if outcome is not None:
        _draw_verdict(outcome, saved, new)
    if outcome is None:
        _draw_transfer(planned, None, saved_plan, new_plan)
    else:
        _draw_transfer(outcome.snapshot.transfer, outcome, outcome.saved, outcome.snapshot)


# --- The two layouts ------------------------------------------------------------------------------


def _draw_layout(title: str, layout: Layout, planned: Snapshot) -> None:
    st.markdown(f"**{title}**")
    fields = layouts.to_fields(layout)
    rules = fields.get("rules", fields.get("specs", "")).replace(",", ", ") or "no rules"
    st.markdown(
        f"{plain(layout.entry.title)} on **{plain(_mesh_words(layout))}**  \n"
        f":small[{plain(rules.replace('=', ' → '))}]"
    )
    st.caption(_held(layout, planned))


def _held(layout: Layout, planned: Snapshot) -> str:
    sums = state_totals(planned)
    return (
        f"{counted(layout.devices, 'device')}; the train state of {bytes_text(sums.bytes)} takes "
        f"{bytes_text(sums.per_device)} on each."
    )


def _mesh_words(layout: Layout) -> str:
    axes = zip(layout.axis_names, layout.mesh_shape, strict=True)
    return " × ".join(f"{name} {size}" for name, size in axes)


def _draw_new_layout(saved: Layout) -> Layout | None:
    """The fields of the new layout; None while one of them is wrong."""
    st.markdown("**Restored under**")
    _draw_presets(saved)
    left, middle = st.columns([2, 3])
    left.text_input(
        "New mesh",
        key=_widget("mesh"),
        on_change=_change_mesh,
        args=(saved,),
        help="Sizes of the mesh axes joined by x; another number of devices is fine.",
    )
    middle.text_input("New axis names", key=_widget("axes"), help="Joined by commas.")
    last = "rules" if saved.entry.has_rules else "specs"
    st.text_input(
        "New rules" if last == "rules" else "New PartitionSpecs",
        key=_widget(last),
        help="Logical axis = mesh axis, joined by commas; several mesh axes are joined by +."
        if last == "rules"
        else "Place = one entry a dimension joined by points, such as W1=None.model, joined by commas.",
    )
    parsed = layouts.parse(_fields(saved, _typed(saved)))
    for problem in parsed.problems.values():
        st.markdown(f":red[:material/error: :small[{plain(problem)}]]")
    return parsed.value


def _draw_presets(saved: Layout) -> None:
    now = layouts.parse_leniently(_fields(saved, _typed(saved))).value
    current = presets.matching(now)
    key = _widget("preset")
    st.session_state[key] = current.name if current else None

    def apply() -> None:
        for preset in presets.fitting(now.entry):
            if preset.name == st.session_state[key]:
                _put(preset.applied_to(now))

    st.pills("Preset", [one.name for one in presets.fitting(now.entry)], key=key, on_change=apply)


def _typed(saved: Layout) -> dict[str, str]:
    """What was typed for the new layout. Streamlit forgets widgets of a page that is left, this does not."""
    last = "rules" if saved.entry.has_rules else "specs"
    if last not in st.session_state.get("restore_fields", {}):
        _put(suggested(saved))
    typed: dict[str, str] = st.session_state["restore_fields"]
    for name in ("mesh", "axes", last):
        st.session_state.setdefault(_widget(name), typed[name])
        typed[name] = st.session_state[_widget(name)]
    return typed


def _put(layout: Layout) -> None:
    st.session_state["restore_fields"] = _three_fields(layout)
    for name, text in _three_fields(layout).items():
        st.session_state[_widget(name)] = text


def _change_mesh(saved: Layout) -> None:
    """A mesh of another rank gets as many axis names: the first ones stay."""
    state = st.session_state
    try:
        shape = layouts.parse_mesh(state[_widget("mesh")])
    except InvalidInput:
        return
    names = [name.strip() for name in state[_widget("axes")].split(",")]
    if len(names) != len(shape):
        known = (*names, *saved.axis_names, *layouts.DEFAULT_AXES[layouts.MOST_AXES])
        state[_widget("axes")] = ", ".join(list(dict.fromkeys(known))[: len(shape)])


def suggested(saved: Layout) -> Layout:
    """Another layout to begin with: the mesh turned round, or half as many devices."""
    shape = saved.mesh_shape[::-1]
    if shape == saved.mesh_shape:
        even = next((place for place, size in enumerate(shape) if size % 2 == 0), None)
        shape = tuple(size // 2 if place == even else size for place, size in enumerate(shape))
    fields = layouts.to_fields(saved) | {"mesh": layouts.print_mesh(shape)}
    return layouts.parse(fields).unwrap()


def _fields(saved: Layout, typed: Mapping[str, str]) -> dict[str, str]:
    """The saved layout's fields with those that were typed: model and sizes are the same in both."""
    fields = {name: text for name, text in layouts.to_fields(saved).items() if name not in FIELDS}
    last = "rules" if saved.entry.has_rules else "specs"
    return fields | {name: typed[name] for name in ("mesh", "axes", last)}


def _three_fields(layout: Layout) -> dict[str, str]:
    fields = layouts.to_fields(layout)
    return {name: fields[name].replace(",", ", ") for name in FIELDS if name in fields}


def _widget(name: str) -> str:
    return f"restore_{name}"


# --- The run --------------------------------------------------------------------------------------


def _draw_run(
    service: Inspection, saved: Layout, new: Layout, saved_plan: Snapshot, new_plan: Snapshot
) -> None:
    current: Underway | None = st.session_state.get("restoration")
    if current is not None:
        # A fragment redraws itself alone, so that the page's other widgets stay usable.
        st.fragment(_draw_progress, run_every=POLL_SECONDS)(_key(saved, new))
        return
    done = _key(saved, new) in _outcomes()
    button, note = st.columns([1, 3], vertical_alignment="center")
    if button.button(
        "Save and restore again" if done else "Save and restore",
        key="restore_button",
        type="secondary" if done else "primary",
        icon=":material/swap_horiz:",
        width="stretch",
    ):
        st.session_state.restore_error = None
        try:
            restoration = service.start_restoration(saved, new, saved_plan, new_plan)
        except InvalidInput as refused:
            st.session_state.restore_error = str(refused)
        else:
            current = Underway(restoration)
            # Streamlit drops a session's state a while after its tab is closed; nobody waits then.
            weakref.finalize(current, restoration.cancel)
            st.session_state.restoration = current
        st.rerun()
    note.caption(
        f"Trains one step on {counted(saved.devices, 'emulated device')}, saves with Orbax, restores on "
        f"{new.devices:,} in another process, and compares every value. The files are removed after it."
    )
    error = st.session_state.get("restore_error")
    if error:
        st.error(plain(error), icon=":material/error:")


def _draw_progress(shown: str) -> None:
    current: Underway = st.session_state["restoration"]
    restoration = current.restoration
    moment = restoration.status()
    if moment.finished:
        _finish(restoration)
        st.rerun()
    label, share = _progress(moment)
    if _key(restoration.saved_layout, restoration.layout) != shown:
        label += " (the layouts before your change)"
    bar, button = st.columns([3, 1], vertical_alignment="center")
    bar.progress(share, text=plain(label))
    if button.button(
        "Cancel", key="restore_cancel_button", icon=":material/stop:", width="stretch"
    ):
        restoration.cancel()


def _finish(restoration: Restoration) -> None:
    st.session_state.restoration = None
    try:
        outcome = inspection.shared().take_restoration(restoration)
    except InvalidInput as refused:
        st.session_state.restore_error = str(refused)
        return
    outcomes = _outcomes()
    key = _key(restoration.saved_layout, restoration.layout)
    outcomes[key] = outcome
    outcomes.move_to_end(key)
    while len(outcomes) > REMEMBERED_OUTCOMES:
        outcomes.popitem(last=False)


def _progress(moment: Moment) -> tuple[str, float]:
    """What is happening in words, and a share of the whole for the bar: phases count equally."""
    job = moment.job
    if job is None or job.state == "queued":
        place = f", place {job.place} in the queue" if job is not None and job.place else ""
        return f"Waiting for a worker{place}", 0.0 if moment.stage == "save" else 0.6
    step = (moment.stage, job.phase or "start")
    words = PHASES.get(step, job.phase or "")
    position = list(PHASES).index(step) if step in PHASES else 0
    done, of = job.progress.get("done", 0), job.progress.get("of", 0)
    if of:
        words += f", array {done + 1} of {of}"
    return words, (position + (done / of if of else 0.0)) / len(PHASES)


def _outcomes() -> OrderedDict[str, Outcome]:
    return st.session_state.setdefault("restored_outcomes", OrderedDict())


def _key(saved: Layout, new: Layout) -> str:
    return f"{saved.key()} {new.key()}"


# --- What came of it ------------------------------------------------------------------------------


def _draw_verdict(outcome: Outcome, saved: Layout, new: Layout) -> None:
    found = outcome.snapshot.transfer
    words = transfer.verdict(found, f"{_short(saved)} → {_short(new)}")
    if all(row.unequal == 0 for row in found.arrays):
        st.success(plain(words), icon=":material/verified:")
    else:
        st.error(plain(words), icon=":material/error:")
    for finding in outcome.snapshot.findings:
        st.error(plain(finding.message), icon=":material/error:")
    st.caption(
        f"Orbax wrote {bytes_text(outcome.file_bytes)} in "
        f"{seconds_text(outcome.seconds_saving)} and read them in "
        f"{seconds_text(outcome.seconds_restoring)}, measured on this machine's own disk."
    )


def _short(layout: Layout) -> str:
    return "×".join(map(str, layout.mesh_shape))


def _draw_transfer(
    found: Transfer, outcome: Outcome | None, before: Snapshot, after: Snapshot
) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if outcome is None:
            st.badge(
                "Planned: computed from both layouts, nothing run",
                icon=":material/architecture:",
                color="blue",
            )
        else:
            st.badge(
                "Restored: placements read from live arrays",
                icon=":material/memory:",
                color="green",
            )
            st.download_button(
                "Snapshot",
                data=lambda: snapshot.dumps(outcome.snapshot),
                file_name="restored.json",
                mime="application/json",
                key="download_restored",
                icon=":material/download:",
                type="tertiary",
                on_click="ignore",
                help="The restored train state as Snapshot JSON, with all that moved.",
            )
    sums = transfer.totals(found)
    figures = {
        "Must move": bytes_text(sums.moved),
        "Stays": bytes_text(sums.kept),
        "Devices that send": f"{sums.senders:,}",
        "Devices that receive": f"{sums.receivers:,}",
    }
    for column, (label, value) in zip(st.columns(4), figures.items(), strict=True):
        column.metric(label, value)
    st.markdown(plain(transfer.in_words(found)))
    st.caption(
        "The least that must move, computed from both placements; Orbax itself goes through files. What "
        "a device held before stays there, and every other part comes from the device that held "
        "replica 0 of it."
    )
    named = (("Saved", before), ("Restored", after))
    with chart.of(lambda: provenance.lines(named)):
        _draw_map(found, before, after)
    table.show(
        columns(found),
        "transfer_table",
        column_config={
            **{
                name: st.column_config.NumberColumn(format="localized")
                for name in ("Bytes once", "On all devices", "Must move", "Stays")
            },
            "Moves": st.column_config.ProgressColumn(
                format="percent",
                min_value=0,
                max_value=1,
                help="Share of the bytes on all devices.",
            ),
        },
    )


def _draw_map(found: Transfer, before: Snapshot, after: Snapshot) -> None:
    """The routes of all arrays, or of one that the person chooses."""
    paths = [row.path for row in found.arrays]
    if st.session_state.get("restore_array") not in paths:
        st.session_state["restore_array"] = ALL_ARRAYS
    path = st.selectbox("Array", [ALL_ARRAYS, *paths], key="restore_array")
    title, parts = "Bytes from device to device", None
    if path != ALL_ARRAYS:
        title = f"{path}: bytes from device to device"
        found, parts = (
            transfer.of_array(before, after, path),
            transfer.parts(before, after, path),
        )
        st.markdown(plain(transfer.in_words(found)))
    chart.draw(
        transfer_map(found, title=title, parts=parts, width_px=1000),
        "transfer_map",
        alt=f"Bytes that move from each device to each device, {path}",
    )


def columns(found: Transfer) -> dict[str, list]:
    """A row an array; bytes as numbers, so that they sort."""
    rows = found.arrays
    by_name: dict[str, list] = {
        "Path": [row.path for row in rows],
        "Bytes once": [row.bytes for row in rows],
        "On all devices": [row.kept + row.moved for row in rows],
        "Must move": [row.moved for row in rows],
        "Stays": [row.kept for row in rows],
        "Moves": [row.moved / ((row.kept + row.moved) or 1) for row in rows],
    }
    if any(row.unequal is not None for row in rows):
        by_name["Values"] = [_values(row) for row in rows]
    return by_name


def _values(row: snapshot.ArrayTransfer) -> str:
    if row.unequal is None:
        return "not compared"
    return f"{row.unequal:,} of {row.elements:,} unequal" if row.unequal else "all equal"
