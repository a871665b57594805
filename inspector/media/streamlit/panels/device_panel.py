"""The contents of one or more devices."""

import streamlit as st

from inspector.core import device_holdings
from inspector.core.meshes import mesh_of_all_devices
from inspector.core.snapshot import Mesh, Snapshot
from inspector.core.totals import STATE_GROUPS
from inspector.layout import Layout
from inspector.media.streamlit.page import page_width
from inspector.media.streamlit.parts import render, table
from inspector.media.streamlit.session import kept_field
from inspector.sections import devices, unknown
from inspector.sections.section import text

ONE, PROCESS, SEVERAL = "One device", "One process", "Several devices"
STATE, EVERYTHING = "Train state", "All arrays"
_WHICH, _DEVICES, _PROCESS = "device_which", "device_devices", "device_process"
_DEVICE, _GROUPS = "device_device", "device_groups"


def show(snapshot: Snapshot, _: Layout | None) -> None:
    """Draw the choice of devices, and everything that they hold."""
    mesh = mesh_of_all_devices(snapshot)
    missing = unknown.no_arrays(snapshot) or unknown.no_mesh(snapshot)
    if missing is not None or mesh is None:
        render.show(filter(None, [missing]))
        return
    chosen = _choose(snapshot, mesh)
    if not chosen:
        st.info("Choose at least one device.", icon=":material/touch_app:")
        return
    groups = _choose_groups(snapshot)
    held = device_holdings.holdings(snapshot, chosen, groups)
    hint = text("Click a device to select it.", quiet=True)
    pick = table.array_picker(
        [piece.path for piece in devices.ordered(held)],
        "device_selected",
        "Data with the most bytes comes first.",
    )
    render.show(
        [
            devices.facts(held),
            *devices.figures(snapshot, held, groups, hint),
            devices.table(held),
            *devices.uncounted(held),
        ],
        {"copies_map": _pick_device, "device_table": pick},
    )


def _choose(snapshot: Snapshot, mesh: Mesh) -> tuple[int, ...]:
    processes = sorted(set(mesh.processes or ()))
    ways = [ONE, *([PROCESS] if len(processes) > 1 else []), SEVERAL]
    left, right = page_width.beside([2, 3])
    with left:
        which = kept_field.draw_one_of("Devices of interest", ways, _WHICH)
    with right:
        if which == PROCESS:
            if st.session_state.get(_PROCESS) not in processes:
                st.session_state[_PROCESS] = processes[0]
            process = kept_field.draw(st.selectbox, "Process", processes, key=_PROCESS)
            return device_holdings.devices_of_process(snapshot, process)
        if which == SEVERAL:
            st.session_state[_DEVICES] = [
                device for device in st.session_state.get(_DEVICES, ()) if device in mesh.devices
            ] or [mesh.devices[0]]
            return tuple(kept_field.draw(st.multiselect, "Devices", mesh.devices, key=_DEVICES))
        if st.session_state.get(_DEVICE) not in mesh.devices:
            st.session_state[_DEVICE] = mesh.devices[0]
        return (kept_field.draw(st.selectbox, "Device", mesh.devices, key=_DEVICE),)


def _choose_groups(snapshot: Snapshot) -> tuple[str, ...] | None:
    """Draw the choice between the train state and all arrays; return None for all arrays."""
    present = {array.group for array in snapshot.arrays}
    if not present - set(STATE_GROUPS) or not present & set(STATE_GROUPS):
        return None
    chosen = kept_field.choose("Arrays", [STATE, EVERYTHING], _GROUPS)
    return STATE_GROUPS if chosen == STATE else None


def _pick_device(device: int | None) -> None:
    if device is not None:
        st.session_state[_WHICH], st.session_state[_DEVICE] = ONE, device
